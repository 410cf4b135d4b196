"""Reductions over axes, and transforms that are sums: the discrete Fourier transform."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from convertkit.artifact import Array
from convertkit.onnx.twin.call import Call, Handler, Results
from convertkit.onnx.twin.deviations import serves_squares
from convertkit.onnx.twin.values import Tensor

Axes = tuple[int, ...]
Reduce = Callable[[Call, Array, Axes, float], Array]


def _reduction(compute: Reduce) -> Handler:
    """``compute`` gets the operand, the axes that go (kept as 1) and how many elements meet."""

    def handler(call: Call) -> Results | None:
        if not call.tensor(0).is_real:
            return None
        x, axes = call.array(0), _axes(call)
        if axes is None:
            return [call.rounded(_alone(compute, call, x))]
        count = float(math.prod(x.shape[axis] for axis in axes))
        kept = compute(call, x, axes, count)
        return [call.rounded(kept if call.whole("keepdims", 1) else kept.squeeze(axes))]

    return handler


def _alone(compute: Reduce, call: Call, x: Array) -> Array:
    """Without an axis to reduce every element is a sum of its own (``noop_with_empty_axes``)."""
    return compute(call, x[..., None], (x.ndim,), 1.0)[..., 0]


def _axes(call: Call) -> Axes | None:
    rank, stored = call.array(0).ndim, call.optional(1)
    named = call.wholes("axes") if stored is None else tuple(int(axis) for axis in stored.reshape(-1))
    if not named:
        return None if call.whole("noop_with_empty_axes") else tuple(range(rank))
    return tuple(sorted(axis % rank for axis in named))


def _total(call: Call, x: Array, axes: Axes, count: float) -> Array:
    terms = call.noise.terms(count, x)
    shaken = call.noise.operand(x, call.dtype, terms)
    return call.step(shaken.sum(axes, keepdims=True), terms)


def _sum(call: Call, x: Array, axes: Axes, count: float) -> Array:
    return _total(call, x, axes, count)


def _mean(call: Call, x: Array, axes: Axes, count: float) -> Array:
    """In a steady run the mean of equal elements is exact where a kernel of a variance may never compute it."""
    means = call.noise.quotient(_total(call, x, axes, count), call.dtype, count)
    if call.noise.is_steady and count and serves_squares(call.node):
        least = x.min(axes, keepdims=True)
        means = np.where(least == x.max(axes, keepdims=True), least, means)
    return means


def _norm1(call: Call, x: Array, axes: Axes, count: float) -> Array:
    return _total(call, np.abs(x), axes, count)


def _squares(call: Call, x: Array, axes: Axes, count: float) -> Array:
    return _total(call, call.step(x * x), axes, count)


def _norm2(call: Call, x: Array, axes: Axes, count: float) -> Array:
    return np.sqrt(_squares(call, x, axes, count))


def _log_sum(call: Call, x: Array, axes: Axes, count: float) -> Array:
    return np.log(_total(call, x, axes, count))


def _log_sum_exp(call: Call, x: Array, axes: Axes, count: float) -> Array:
    """With the largest element taken out, as kernels do that do not overflow."""
    largest = x.max(axes, keepdims=True) if count else np.zeros(())
    largest = np.where(np.isfinite(largest), largest, 0.0)
    powers = call.step(np.exp(call.step(x - largest)))
    return call.step(np.log(_total(call, powers, axes, count))) + largest


def _product(call: Call, x: Array, axes: Axes, count: float) -> Array:
    """Each factor rounds once, so that K of them have the error of a sum of K."""
    return call.step(x.prod(axes, keepdims=True), count)


def _dft(call: Call) -> Results:
    """Source: ONNX operators, DFT: the axis is an attribute before opset 20 and an operand since."""
    x, length = call.array(0), call.optional(1)
    stored = call.optional(2)
    axis = call.whole("axis", 1) if call.opset < 20 else -2 if stored is None else int(stored.reshape(-1)[0])
    axis %= x.ndim
    size = x.shape[axis] if length is None else int(length.reshape(-1)[0])
    inverse, half = bool(call.whole("inverse")), bool(call.whole("onesided"))
    if inverse and half:
        result = np.fft.irfft(_complex(x), size if length is not None else None, axis)[..., None]
    else:
        transform = np.fft.ifft if inverse else np.fft.fft
        found = transform(_complex(x), size, axis)
        result = _pairs(np.take(found, range(size // 2 + 1), axis) if half else found)
    length2 = np.sqrt((x * x).sum((axis, -1), keepdims=True)) / (np.sqrt(size) if inverse else 1.0)
    return [_transformed(call, result, length2, size)]


def _transformed(call: Call, result: Array, length: Array, size: int) -> Tensor:
    """Rounding moves each coefficient, even one that is 0 by symmetry, by a part of the operand's Euclidean length.

    Kernels may sum all products with a matrix of cosines and sines: ``size`` terms, of which the sum is as long.
    Where the size is not a power of two ONNX Runtime takes the chirp transform, whose angles of up to ``pi * size``
    it rounds to float32.
    """
    growth = np.sqrt(size) if size & (size - 1) == 0 else size
    moved = call.noise.within(result, call.dtype, length * growth)
    return call.rounded(moved)


def _stft(call: Call) -> Results:
    """Source: ONNX operators, STFT: frames of the signal times the window, transformed."""
    x, step = _complex(call.array(0)), int(call.array(1).reshape(-1)[0])
    window, length = call.optional(2), call.optional(3)
    size = int(length.reshape(-1)[0]) if length is not None else window.shape[0] if window is not None else 0
    frames = np.lib.stride_tricks.sliding_window_view(x, size, 1)[:, ::step]
    if window is not None:
        frames = frames * window
    found = np.fft.fft(frames, axis=-1)
    kept = _pairs(found[..., : size // 2 + 1] if call.whole("onesided", 1) else found)
    return [_transformed(call, kept, np.linalg.norm(frames, axis=-1)[..., None, None], size)]


def _complex(x: Array) -> Array:
    """(…, 1) or (…, 2) as real or complex numbers."""
    return x[..., 0] if x.shape[-1] == 1 else x[..., 0] + 1j * x[..., 1]


def _pairs(x: Array) -> Array:
    return np.stack([x.real, x.imag], -1)


HANDLERS: Mapping[str, Handler] = {
    "DFT": _dft,
    "ReduceL1": _reduction(_norm1),
    "ReduceL2": _reduction(_norm2),
    "ReduceLogSum": _reduction(_log_sum),
    "ReduceLogSumExp": _reduction(_log_sum_exp),
    "ReduceMean": _reduction(_mean),
    "ReduceProd": _reduction(_product),
    "ReduceSum": _reduction(_sum),
    "ReduceSumSquare": _reduction(_squares),
    "STFT": _stft,
}
