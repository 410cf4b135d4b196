"""ONNX convolutions as MIL; images are (batch, channels, *space) in both."""

from __future__ import annotations

import numpy as np

from convertkit.errors import Unsupported
from convertkit.onnx.registry import Registry
from convertkit.targets.coreml.builder import Builder
from convertkit.targets.coreml.handlers.operands import only_float
from convertkit.targets.coreml.handlers.window import flat
from convertkit.targets.coreml.tensor import Tensor
from convertkit.targets.forms.window_nodes import convolution, transposed
from convertkit.targets.forms.windows import Pads, Stated, Transposed

convolutions = Registry()


@convolutions.lowers("Conv", since=(11, 22))
@convolution
def conv(b: Builder, x: Tensor, weight: Tensor, bias: Tensor | None, stated: Stated, group: int) -> Tensor:
    """A bias that is computed when the model runs is added behind."""
    only_float(x, "Conv")
    kernel = weight.sizes[2:]
    if not 1 <= len(kernel) <= 3:
        raise Unsupported(f"{len(kernel)} spatial dimensions: MIL's conv has 1 to 3")
    window = stated.over(x.shape[2:], kernel)
    if any(each < 0 for pad in window.pads for each in pad):
        raise Unsupported("negative padding")
    result = b.op(
        "conv",
        x=x,
        weight=weight,
        bias=bias if bias is not None and bias.array is not None else None,
        strides=window.strides,
        pad_type="custom",
        pad=flat(window.pads),
        dilations=window.dilations,
        groups=np.int32(group),
    )
    if bias is None or bias.array is not None:
        return result
    return b.op("add", x=result, y=b.reshape(bias, (1, -1, *[1] * len(kernel))))


@convolutions.lowers("ConvTranspose", since=(11, 22))
@transposed
def conv_transpose(
    b: Builder, x: Tensor, weight: Tensor, bias: Tensor | None, stated: Transposed, group: int
) -> Tensor:
    """The whole result, of which the borders are cut off: MIL itself may cut no more than there is."""
    only_float(x, "ConvTranspose")
    kernel = weight.sizes[2:]
    if not 1 <= len(kernel) <= 3:
        raise Unsupported(f"{len(kernel)} spatial dimensions: MIL's conv_transpose has 1 to 3")
    if bias is not None and bias.array is None:
        raise Unsupported("a bias that is computed at run time")
    window = stated.over(x.shape[2:], kernel)
    whole = b.op(
        "conv_transpose",
        x=x,
        weight=weight,
        bias=bias,
        strides=window.strides,
        pad_type="valid",
        dilations=window.dilations,
        groups=np.int32(group),
    )
    return _cropped(b, whole, window.pads, bias)


def _cropped(b: Builder, x: Tensor, cuts: Pads, bias: Tensor | None) -> Tensor:
    if any(each < 0 for cut in cuts for each in cut):
        if bias is not None:
            raise Unsupported("output_padding that reaches beyond the result, and a bias")
        added = tuple(max(0, -each) for cut in cuts for each in cut)
        x = b.op("pad", x=x, pad=added, mode="constant", constant_val=b.real(0, x))
    ends = [(max(0, before), max(0, after)) for before, after in cuts]
    if not any(map(any, ends)):
        return x
    return b.op(
        "slice_by_index",
        x=x,
        begin=(0, 0, *[before for before, _ in ends]),
        end=(0, 0, *[-after for _, after in ends]),
        end_mask=(True, True, *[after == 0 for _, after in ends]),
    )
