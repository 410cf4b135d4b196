"""Fourier transforms as MIL: products with the waves, which are constants."""

from __future__ import annotations

import numpy as np

from convertkit.errors import UnknownSize, Unsupported
from convertkit.onnx.fourier import transform
from convertkit.onnx.registry import Registry
from convertkit.targets.coreml.builder import Builder
from convertkit.targets.coreml.handlers.operands import integers, known, only_float
from convertkit.targets.coreml.tensor import Tensor, constant

signal = Registry()


@signal.lowers("DFT", since=17)
def dft_17(
    b: Builder, x: Tensor, length: Tensor | None = None, *, axis: int = 1, inverse: int = 0, onesided: int = 0
) -> Tensor:
    return _dft(b, x, length, axis, bool(inverse), bool(onesided))


@signal.lowers("DFT", since=20)
def dft_20(
    b: Builder,
    x: Tensor,
    length: Tensor | None = None,
    axis: Tensor | None = None,
    *,
    inverse: int = 0,
    onesided: int = 0,
) -> Tensor:
    place = -2 if axis is None else integers(axis, "the axis")[0]
    return _dft(b, x, length, place, bool(inverse), bool(onesided))


def _dft(b: Builder, x: Tensor, length: Tensor | None, axis: int, inverse: bool, onesided: bool) -> Tensor:
    """One axis and the last one, which holds the real or the real and imaginary part, meet one matrix."""
    only_float(x, "DFT")
    axis %= x.rank
    size, parts = x.size(axis), x.size(-1)
    default = 2 * (size - 1) if inverse and onesided else size
    points = default if length is None else integers(length, "the length")[0]
    weights = transform(min(size, points), points, parts, inverse, onesided)
    order = [*(place for place in range(x.rank - 1) if place != axis), axis, x.rank - 1]
    moved = b.transpose(_first(b, x, axis, points), order)
    rest = [-1 if each is None else each for each in moved.shape[:-2]]
    if rest.count(-1) > 1:
        raise UnknownSize("DFT beside more than one dynamic dimension")
    rows = b.reshape(moved, (-1, weights.shape[2] * parts))
    found = b.op("linear", x=rows, weight=constant(weights.reshape(-1, weights.shape[2] * parts)))
    result = b.reshape(found, (*rest, *weights.shape[:2]))
    return b.transpose(result, [order.index(place) for place in range(x.rank)])


def _first(b: Builder, x: Tensor, axis: int, count: int) -> Tensor:
    if count >= x.size(axis):
        return x
    ends = tuple(count if place == axis else 0 for place in range(x.rank))
    mask = tuple(place != axis for place in range(x.rank))
    return b.op("slice_by_index", x=x, begin=(0,) * x.rank, end=ends, end_mask=mask)


@signal.lowers("STFT", since=17)
def stft(
    b: Builder,
    x: Tensor,
    frame_step: Tensor,
    window: Tensor | None = None,
    frame_length: Tensor | None = None,
    *,
    onesided: int = 1,
) -> Tensor:
    """A convolution over time whose kernels are the windowed waves."""
    only_float(x, "STFT")
    (step,) = integers(frame_step, "the step")
    shape = None if window is None else known(window, "the window")
    points = 0 if frame_length is None else integers(frame_length, "the frame's length")[0]
    points = points or (0 if shape is None else len(shape))
    if not points or (shape is not None and len(shape) != points):
        raise Unsupported("a window that is not as long as a frame")
    weights = transform(points, points, x.size(-1), inverse=False, onesided=bool(onesided))
    if shape is not None:
        weights = (weights * shape[:, None]).astype(np.float32)
    kernels = np.ascontiguousarray(weights.reshape(-1, points, x.size(-1)).swapaxes(1, 2))
    waves = b.op("conv", x=b.transpose(x, (0, 2, 1)), weight=constant(kernels), strides=(step,), pad_type="valid")
    split = b.reshape(waves, (-1 if x.shape[0] is None else x.size(0), weights.shape[0], 2, waves.size(2)))
    return b.transpose(split, (0, 3, 1, 2))
