"""Fourier transforms as products with constant matrices, which NumPy computes in float64."""

from __future__ import annotations

import math

import numpy as np

from convertkit.errors import Unsupported
from convertkit.onnx.fourier import block_of, by_blocks, transform, waves
from convertkit.onnx.registry import Registry
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.handlers.elementary import constant_ints, constant_of, float_only
from convertkit.targets.tflite.handlers.indexing import static_shape
from convertkit.targets.tflite.handlers.reductions import known_size
from convertkit.targets.tflite.handlers.shapes import cut
from convertkit.targets.tflite.tensor import DYNAMIC, Tensor

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
    place = -2 if axis is None else constant_ints(axis, "the axis")[0]
    return _dft(b, x, length, place, bool(inverse), bool(onesided))


def _dft(b: Builder, x: Tensor, length: Tensor | None, axis: int, inverse: bool, onesided: bool) -> Tensor:
    """One axis and the last one, which holds the real or the real and imaginary part, meet one matrix."""
    float_only(x, "DFT")
    axis %= x.rank
    size, parts = (known_size(x, place, "DFT") for place in (axis, -1))
    default = 2 * (size - 1) if inverse and onesided else size
    points = constant_ints(length, "the length")[0] if length is not None else default
    weights = transform(min(size, points), points, parts, inverse, onesided)
    used = cut(b, x, [slice(0, points) if place == axis else slice(None) for place in range(x.rank)])
    order = [*(place for place in range(x.rank - 1) if place != axis), axis, x.rank - 1]
    moved = b.transpose(used, order)
    rest = moved.shape[:-2]
    count = DYNAMIC if DYNAMIC in rest else math.prod(rest)
    rows = b.reshape(moved, (count, moved.shape[-2] * parts))
    found = b.fully_connected(rows, b.constant(weights.reshape(-1, rows.shape[1])), None)
    result = b.reshape(found, (*rest, weights.shape[0], weights.shape[1]))
    return b.transpose(result, [order.index(place) for place in range(x.rank)])


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
    float_only(x, "STFT")
    batch, samples, parts = static_shape(x, "STFT", but_batch=True)
    (step,) = constant_ints(frame_step, "the step")
    shape = None if window is None else constant_of(window, "the window")
    points = constant_ints(frame_length, "the frame's length")[0] if frame_length is not None else 0
    points = points or (0 if shape is None else len(shape))
    if not points or (shape is not None and len(shape) != points):
        raise Unsupported("a window that is not as long as a frame")
    weights = waves(points, points, parts, inverse=False, onesided=bool(onesided))
    if shape is not None:
        weights = weights * shape[:, None]
    kernels = weights.reshape(-1, points, parts)
    if parts == 1 and (block := block_of(samples, points, step)):
        x, step = _in_blocks(b, x, samples // block, block), step // block
        kernels = by_blocks(kernels.transpose(0, 2, 1), block).transpose(0, 2, 1)
    zeros = b.constant(np.zeros(len(kernels), np.float32))
    wide = b.constant(kernels[:, None].astype(np.float32))
    found = b.conv_2d(b.expand_dims(x, 1), wide, zeros, padding="VALID", strides=(1, step))
    return b.reshape(found, (batch, found.shape[2], weights.shape[0], 2))


def _in_blocks(b: Builder, x: Tensor, count: int, block: int) -> Tensor:
    """(batch, samples, 1) → (batch, blocks, block + 2), the channels of :func:`.fourier.by_blocks`."""
    whole = cut(b, x, [slice(None), slice(0, count * block), slice(None)])
    rows = b.reshape(whole, (x.shape[0], count, block))
    mean = b.mean(rows, (2,), keep_dims=True)
    first, others = (cut(b, mean, [slice(None), slice(0, end), slice(None)]) for end in (1, max(count - 1, 1)))
    before = b.concatenation([first, others], 1) if count > 1 else mean
    return b.concatenation([b.sub(rows, mean), b.sub(mean, before), mean], 2)
