"""Convolutions of one to three spatial axes; images are (channels, *space) in ncnn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from convertkit.errors import Unsupported
from convertkit.onnx.registry import Registry
from convertkit.targets.forms.window_nodes import convolution, transposed
from convertkit.targets.forms.windows import Stated, Transposed, Window
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


def _parameters(window: Window) -> dict[int, Parameter]:
    if any(each < 0 for pad in window.pads for each in pad):
        raise Unsupported("negative padding")
    before, after = ([pad[end] for pad in window.pads] for end in (0, 1))
    groups: Sequence[tuple[Sequence[int], Sequence[int]]] = (
        (_KERNEL, window.kernel), (_DILATION, window.dilations), (_STRIDE, window.strides),
        (_BEFORE, before), (_AFTER, after),
    )  # fmt: skip
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
@convolution
def conv(b: Builder, x: Tensor, w: Tensor, bias: Tensor | None, stated: Stated, group: int) -> Tensor:
    """Weights lie as in ONNX: output, input of the group, kernel."""
    stored = np.asarray(w.known)
    rank = stored.ndim - 2
    one_image(x, rank)
    window = stated.over(x.shape[2:], stored.shape[2:])
    parameters, weights = _stored(stored, bias, len(stored), group)
    kind = f"Convolution{'DepthWise' if group > 1 else ''}{_ENDS[rank]}"
    shape = (1, len(stored), *window.counts(x.shape[2:]))
    return b.layer(kind, [b.plain(x)], shape, None, {**parameters, **_parameters(window)}, weights)


@convolutions.lowers("ConvTranspose", since=(11, 22))
@transposed
def conv_transpose(b: Builder, x: Tensor, w: Tensor, bias: Tensor | None, stated: Transposed, group: int) -> Tensor:
    """Weights are (input, output of the group, kernel) in ONNX, and outputs come first in ncnn."""
    stored = np.asarray(w.known)
    rank = stored.ndim - 2
    one_image(x, rank)
    window = stated.over(x.shape[2:], stored.shape[2:])
    border = tuple((before, max(after, 0)) for before, after in window.pads)
    extra = [max(-after, 0) for _, after in window.pads]
    channels = stored.shape[1] * group
    turned = stored.reshape(group, -1, *stored.shape[1:]).swapaxes(1, 2)
    parameters, weights = _stored(turned, bias, channels, group)
    kind = f"Deconvolution{'DepthWise' if group > 1 else ''}{_ENDS[rank]}"
    shape = (1, channels, *window.transposed_sizes(x.shape[2:]))
    parameters = {**parameters, **_parameters(replace(window, pads=border)), **spread(_EXTRA, extra)}
    return b.layer(kind, [b.plain(x)], shape, None, parameters, weights)
