"""Convolutions of one to three spatial axes; images are (channels, *space) in ncnn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from convertkit.errors import Unsupported
from convertkit.onnx.registry import Registry
from convertkit.targets.forms.windows import Pads, cuts_of, ones, pads_of
from convertkit.targets.ncnn.builder import Builder, raw, weight
from convertkit.targets.ncnn.layers import Parameter, Weight
from convertkit.targets.ncnn.tensor import Tensor

convolutions = Registry()

_ENDS = {1: "1D", 2: "", 3: "3D"}
_KERNEL, _DILATION, _STRIDE = (1, 11, 21), (2, 12, 22), (3, 13, 23)
"""Keys for width, height and depth."""
_BEFORE, _AFTER = (4, 14, 24), (15, 16, 17)
_EXTRA = (18, 19, 20)


def spread(keys: Sequence[int], values: Sequence[int]) -> dict[int, Parameter]:
    """Values of the spatial axes, the outermost first, under keys whose first is that of the innermost."""
    return dict(zip(keys, reversed(values), strict=False))


def one_image(x: Tensor, rank: int) -> None:
    """``Unsupported`` where there is no single image of ``rank`` spatial axes."""
    if not 1 <= rank <= len(_ENDS) or x.rank != rank + 2:
        raise Unsupported(f"{rank} spatial axes: ncnn's layers have one to three")
    if x.shape[0] != 1:
        raise Unsupported(f"a batch of {x.shape[0]}: ncnn computes one sample at a time; fix the batch to 1")


def _window(
    kernel: tuple[int, ...], gaps: tuple[int, ...], steps: tuple[int, ...], border: Pads
) -> dict[int, Parameter]:
    if any(each < 0 for pad in border for each in pad):
        raise Unsupported("negative padding")
    before, after = ([pad[end] for pad in border] for end in (0, 1))
    groups = ((_KERNEL, kernel), (_DILATION, gaps), (_STRIDE, steps), (_BEFORE, before), (_AFTER, after))
    return {key: value for keys, values in groups for key, value in spread(keys, values).items()}


def _stored(
    kernel: np.ndarray, bias: Tensor | None, channels: int, group: int
) -> tuple[Mapping[int, Parameter], list[Weight]]:
    """The parameters and weights that all of them have."""
    parameters: dict[int, Parameter] = {0: channels, 5: int(bias is not None), 6: kernel.size}
    if group > 1:
        parameters[7] = group
    return parameters, [weight(kernel), *([] if bias is None else [raw(bias.known)])]


@convolutions.lowers("Conv", since=(11, 22))
def conv(
    b: Builder,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    *,
    auto_pad: str = "NOTSET",
    dilations: tuple[int, ...] | None = None,
    group: int = 1,
    kernel_shape: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Tensor:
    """Weights lie as in ONNX: output, input of the group, kernel."""
    stored = np.asarray(w.known)
    kernel, rank = stored.shape[2:], stored.ndim - 2
    one_image(x, rank)
    steps, gaps = ones(strides, rank), ones(dilations, rank)
    border = pads_of(x.shape[2:], kernel, steps, gaps, pads, auto_pad)
    parameters, weights = _stored(stored, bias, len(stored), group)
    kind = f"Convolution{'DepthWise' if group > 1 else ''}{_ENDS[rank]}"
    reach = zip(x.shape[2:], border, kernel, gaps, steps, strict=True)
    space = [(size + sum(pad) - (width - 1) * gap - 1) // step + 1 for size, pad, width, gap, step in reach]
    shape = (1, len(stored), *space)
    return b.layer(kind, [b.plain(x)], shape, None, {**parameters, **_window(kernel, gaps, steps, border)}, weights)


@convolutions.lowers("ConvTranspose", since=(11, 22))
def conv_transpose(
    b: Builder,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    *,
    auto_pad: str = "NOTSET",
    dilations: tuple[int, ...] | None = None,
    group: int = 1,
    kernel_shape: tuple[int, ...] | None = None,
    output_padding: tuple[int, ...] | None = None,
    output_shape: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Tensor:
    """Weights are (input, output of the group, kernel) in ONNX, and outputs come first in ncnn."""
    stored = np.asarray(w.known)
    kernel, rank = stored.shape[2:], stored.ndim - 2
    one_image(x, rank)
    steps, gaps = ones(strides, rank), ones(dilations, rank)
    cuts = cuts_of(x.shape[2:], kernel, steps, gaps, output_padding or (0,) * rank, pads, output_shape, auto_pad)
    border, extra = tuple((before, max(after, 0)) for before, after in cuts), [max(-after, 0) for _, after in cuts]
    channels = stored.shape[1] * group
    turned = stored.reshape(group, -1, *stored.shape[1:]).swapaxes(1, 2)
    parameters, weights = _stored(turned, bias, channels, group)
    kind = f"Deconvolution{'DepthWise' if group > 1 else ''}{_ENDS[rank]}"
    reach = zip(x.shape[2:], border, kernel, gaps, steps, extra, strict=True)
    space = [(size - 1) * step + (width - 1) * gap + 1 - sum(pad) + more for size, pad, width, gap, step, more in reach]
    window = {**_window(kernel, gaps, steps, border), **spread(_EXTRA, extra)}
    return b.layer(kind, [b.plain(x)], (1, channels, *space), None, {**parameters, **window}, weights)
