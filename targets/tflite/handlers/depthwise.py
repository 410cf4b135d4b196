"""Wide depthwise windows as sums of windows that XNNPACK has a kernel for.

XNNPACK's depthwise kernels end at 25 taps; a 7×7 window falls back to one matrix product per channel, measured
18 times slower than a 5×5 window.  A square window of odd size is its 5×5 centre and, around it, ring after
ring: a pair of rows and a pair of columns, each a small window with a dilation that keeps SAME padding:

    7×7  =  5×5  +  rows 0 and 6 (2×7, dilation 6×1)  +  columns 0 and 6 of the rows between (5×2, dilation 1×6)
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.tensor import Tensor

_MOST_TAPS = 25
_CENTRE = 5
_LARGEST = 11  # the pair of rows of the last ring has 22 taps


def is_wide(b: Builder, x: Tensor, w: Tensor, strides: tuple[int, int], dilations: tuple[int, int]) -> bool:
    """Whether :func:`wide_depthwise` takes this window: float, weights known, square, odd, dense."""
    height, width = w.shape[2:]
    fits = height == width and width % 2 == 1 and width <= _LARGEST and height * width > _MOST_TAPS
    return fits and _known(b, w) is not None and x.dtype == "float32" and strides == dilations == (1, 1)


def wide_depthwise(b: Builder, x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    """Depthwise convolution with SAME padding, ``w`` [channels, 1, size, size]; the bias joins the centre.

    Weights that are stored as integers or halves stay so, each piece behind a DEQUANTIZE of its own.
    """
    known = _known(b, w)
    assert known is not None
    assert known.constant is not None
    total: Tensor | None = None
    for kernel, dilations in _pieces(known.constant):
        offset = bias if total is None else b.constant(np.zeros(w.shape[0], np.float32))
        piece = b.constant(np.ascontiguousarray(kernel), known.quantization)
        weight = b.transpose(piece if known is w else b.dequantize(piece), (1, 2, 3, 0))
        part = b.depthwise_conv_2d(x, weight, offset, padding="SAME", dilations=dilations)
        total = part if total is None else b.add(total, part)
    assert total is not None
    return total


def _known(b: Builder, w: Tensor) -> Tensor | None:
    """The constant that the weights are, or that stands behind their DEQUANTIZE."""
    return w if w.constant is not None else b.stored_weight(w)


def _pieces(kernel: np.ndarray) -> Iterator[tuple[np.ndarray, tuple[int, int]]]:
    """Windows and dilations whose sum is ``kernel``, the centre first."""
    middle = kernel.shape[-1] // 2
    low, high = middle - _CENTRE // 2, middle + _CENTRE // 2
    yield kernel[:, :, low : high + 1, low : high + 1], (1, 1)
    while low > 0:
        low, high = low - 1, high + 1
        reach = high - low
        yield kernel[:, :, [low, high], low : high + 1], (reach, 1)
        yield kernel[:, :, low + 1 : high][:, :, :, [low, high]], (1, reach)
