"""Convolutions of few channels, with pixels of a row as channels of one: see ``convertkit.kernel_costs``.

An image of few channels is the same memory as one of fewer, wider pixels, so no transposition is needed; weights that
a wider window adds are zeros, so every integer result stays what it was.  Padding comes before the rows are cut:
XNNPACK pads rows much faster than it pads pixels of a few bytes.

    x [N, H, W, C]  →  RESHAPE [N, H, W * C]  →  PAD  →  RESHAPE [N, H', W' / b, b * C]  →  CONV_2D  →  RESHAPE
"""

from __future__ import annotations

import numpy as np

from convertkit.kernel_costs import ConvShape
from convertkit.targets.forms.windows import Window
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.tensor import DYNAMIC, QuantParams, Tensor


def outputs_together(b: Builder, x: Tensor, w: Tensor, bias: Tensor | None, win: Window) -> int:
    """How many outputs of a row :func:`conv_rows` is best asked to compute as one; 0 where it does not help."""
    known = DYNAMIC not in x.shape[1:] and w.constant is not None and bias is not None and bias.constant is not None
    kernel_costs = b.program.kernel_costs
    if (
        b.program.portable
        or kernel_costs is None
        or x.dtype != "int8"
        or w.dtype != "int8"
        or not known
        or set(win.dilations) != {1}
    ):
        return 0
    height, width = (_outputs(win, x.shape, axis) for axis in (0, 1))
    window = win.kernel[0], win.kernel[1]
    shape = ConvShape(height * width, width, window, win.strides[1], x.shape[3], w.shape[0])
    return kernel_costs.together(shape)


def conv_rows(b: Builder, x: Tensor, w: Tensor, bias: Tensor, win: Window, outputs: int) -> Tensor:
    """The convolution with ``outputs`` neighbours of a row as filters of one pixel; ``w`` [out, in, height, width]."""
    count, rows, wide, channels = x.shape
    stride, before = win.strides[1], win.pads[1][0]
    block, width = outputs * stride, _outputs(win, x.shape, 1)
    reach = -(-(win.kernel[1] + (outputs - 1) * stride) // block)
    total = block * (width // outputs - 1 + reach)
    flat = b.reshape(x, (count, rows, wide * channels))
    # Where the last pixels of a row are read by no window there may be too many of them.
    used = min(wide, total - before)
    if used < wide:
        flat = b.slice(flat, (0, 0, 0), (-1, rows, used * channels))
    flat = b.pad(flat, ((0, 0), win.pads[0], (before * channels, (total - before - used) * channels)))
    folded = b.reshape(flat, (count, flat.shape[1], total // block, block * channels))
    kernel = _kernel(b, w, outputs, stride, reach * block)
    made = b.conv_2d(folded, kernel, _repeated(b, bias, outputs), padding="VALID", strides=(win.strides[0], 1))
    return b.reshape(made, (count, made.shape[1], width, w.shape[0]))


def _kernel(b: Builder, w: Tensor, outputs: int, stride: int, wide: int) -> Tensor:
    """``w`` as OHWI over blocks of pixels, shifted by a stride for each of the outputs."""
    assert w.constant is not None
    filters, channels, height, width = w.shape
    spread = np.zeros((outputs, filters, height, wide, channels), w.constant.dtype)
    for place in range(outputs):
        spread[place, :, :, place * stride : place * stride + width] = w.constant.transpose(0, 2, 3, 1)
    block = outputs * stride
    return b.constant(
        spread.reshape(outputs * filters, height, wide // block, block * channels), _params(w.quantization, outputs)
    )


def _repeated(b: Builder, bias: Tensor, outputs: int) -> Tensor:
    assert bias.constant is not None
    return b.constant(np.tile(bias.constant, outputs), _params(bias.quantization, outputs))


def _params(params: QuantParams | None, outputs: int) -> QuantParams | None:
    if params is None or len(params.scale) == 1:
        return params
    return QuantParams(params.scale * outputs, params.zero_point * outputs, 0)


def _outputs(win: Window, shape: tuple[int, ...], axis: int) -> int:
    return (shape[1 + axis] + sum(win.pads[axis]) - win.kernel[axis]) // win.strides[axis] + 1
