"""Pools: sums, norms and maxima over windows or over all of an image."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from convertkit.artifact import Array
from convertkit.onnx.twin.call import Call, Handler, Results
from convertkit.onnx.twin.handlers.windows import Axis, axes_of, padded, taken

_MAX_POOL_IN_DOUBLE_SINCE = 8


def _summed(x: Array, axes: list[Axis]) -> Array:
    total = np.zeros((*x.shape[:2], *(axis.count for axis in axes)))
    for offset in np.ndindex(*(axis.kernel for axis in axes)):
        total += taken(x, axes, offset)
    return total


def _axes(call: Call) -> list[Axis]:
    return axes_of(call, call.array(0).shape[2:], call.wholes("kernel_shape") or ())


def _average(call: Call) -> Results:
    """The mean of what a window holds, of the declared padding too where ``count_include_pad`` says so."""
    axes = _axes(call)
    window = float(math.prod(axis.kernel for axis in axes))
    x = call.noise.operand(call.array(0), call.dtype, window)
    counts = np.ones((1, 1, *(axis.size for axis in axes)))
    if call.whole("count_include_pad"):
        counts = np.pad(counts, [(0, 0), (0, 0), *((axis.before, axis.after) for axis in axes)], constant_values=1.0)
        beyond = [(0, 0), (0, 0), *((0, axis.beyond) for axis in axes)]
        counts = np.pad(counts, beyond)
    else:
        counts = padded(counts, axes, 0.0)
    total = call.step(_summed(padded(x, axes, 0.0), axes), window)
    return [call.rounded(total / _summed(counts, axes))]


def _lp(call: Call) -> Results:
    axes, power = _axes(call), call.whole("p", 2)
    window = float(math.prod(axis.kernel for axis in axes))
    powers = call.noise.operand(call.step(np.abs(call.array(0)) ** power), call.dtype, window)
    total = call.step(_summed(padded(powers, axes, 0.0), axes), window)
    return [call.rounded(total ** (1.0 / power))]


def _old_maximum(call: Call) -> Results | None:
    """ONNX Runtime's double kernel knows opset 8 and later."""
    if call.opset >= _MAX_POOL_IN_DOUBLE_SINCE:
        return None
    axes = _axes(call)
    x = padded(call.array(0), axes, -np.inf)
    largest = np.full((*x.shape[:2], *(axis.count for axis in axes)), -np.inf)
    for offset in np.ndindex(*(axis.kernel for axis in axes)):
        largest = np.maximum(largest, taken(x, axes, offset))
    return [call.rounded(largest)]


def _space(x: Array) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


def _global_average(call: Call) -> Results:
    x = call.array(0)
    count = float(math.prod(x.shape[2:]))
    total = call.noise.operand(x, call.dtype, count).sum(_space(x), keepdims=True)
    return [call.rounded(call.step(total, count) / count)]


def _global_maximum(call: Call) -> Results:
    x = call.array(0)
    return [call.rounded(x.max(_space(x), keepdims=True))]


def _global_lp(call: Call) -> Results:
    x, power = call.array(0), call.whole("p", 2)
    count = float(math.prod(x.shape[2:]))
    powers = call.noise.operand(call.step(np.abs(x) ** power), call.dtype, count)
    return [call.rounded(call.step(powers.sum(_space(x), keepdims=True), count) ** (1.0 / power))]


HANDLERS: Mapping[str, Handler] = {
    "AveragePool": _average,
    "GlobalAveragePool": _global_average,
    "GlobalLpPool": _global_lp,
    "GlobalMaxPool": _global_maximum,
    "LpPool": _lp,
    "MaxPool": _old_maximum,
}
