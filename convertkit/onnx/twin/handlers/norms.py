"""Normalisations that have neither a double kernel nor a function body."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.errors import Unsupported
from convertkit.onnx.twin.call import Call, Handler, Results

_ONE_OUTPUT_SINCE = 14
"""Opset since which BatchNormalization says itself whether it trains."""


def _batch(call: Call) -> Results | None:
    """``(x - mean) / sqrt(variance + epsilon) * scale + bias``, by channel."""
    if call.opset < _ONE_OUTPUT_SINCE and (len(call.node.outputs) > 1 or not call.whole("spatial", 1)):
        return None
    x = call.array(0)
    shape = (1, -1, *(1,) * (x.ndim - 2))
    scale, bias, mean, variance = (call.array(place) for place in range(1, 5))
    if not call.whole("training_mode"):
        mean, variance = mean.reshape(shape), variance.reshape(shape)
        return [call.rounded(_normalised(call, x, scale.reshape(shape), bias.reshape(shape), mean, variance))]
    axes = (0, *range(2, x.ndim))
    current, apart = moments(call, x, axes)
    kept = call.number("momentum", 0.9)
    y = _normalised(call, x, scale.reshape(shape), bias.reshape(shape), current, apart)
    running = (
        call.step(call.step(old * kept) + call.step(new.reshape(-1) * (1.0 - kept)))
        for old, new in ((mean, current), (variance, apart))
    )
    return [call.rounded(y), *(call.rounded(each) for each in running)]


def _instance(call: Call) -> Results:
    x, shape = call.array(0), (1, -1, *(1,) * (call.array(0).ndim - 2))
    mean, variance = moments(call, x, tuple(range(2, x.ndim)))
    scale, bias = call.array(1).reshape(shape), call.array(2).reshape(shape)
    return [call.rounded(_normalised(call, x, scale, bias, mean, variance))]


def moments(call: Call, x: Array, axes: tuple[int, ...], dtype: ir.DataType | None = None) -> tuple[Array, Array]:
    """Mean and variance over ``axes``, kept as 1, computed in the model's ``dtype``."""
    count, dtype = float(np.prod([x.shape[axis] for axis in axes])), dtype or call.dtype
    shaken = call.noise.operand(x, dtype, count)
    mean = call.step(call.noise.quotient(shaken.sum(axes, keepdims=True), dtype, count), count, dtype)
    squares = call.noise.operand(call.step((x - mean) ** 2, dtype=dtype), dtype, count)
    return mean, call.step(squares.mean(axes, keepdims=True), count, dtype)


def _normalised(call: Call, x: Array, scale: Array, bias: Array, mean: Array, variance: Array) -> Array:
    """Kernels may fold all into one product and one sum, so the difference is rounded as its operands are."""
    root = call.step(np.sqrt(call.step(variance + call.number("epsilon", 1e-5))))
    shifted = call.noise.within(x - mean, call.dtype, np.abs(x) + np.abs(mean))
    return np.asarray(shifted * call.step(scale / root) + bias)


def _mean_variance(call: Call) -> Results:
    """``(x - mean) / std`` as ONNX Runtime computes it, and 0 for equal elements.

    Not ONNX's body, which adds 1e-9 to the deviation, and whose difference of means has no digits there.
    """
    x, axes = call.array(0), tuple(call.wholes("axes") or (0, 2, 3))
    if not all(-x.ndim <= axis < x.ndim for axis in axes):
        raise Unsupported(f"axes {axes} of a tensor of {x.ndim}", subject=call.title)
    mean, variance = moments(call, x, axes)
    root = call.step(np.sqrt(variance) + 1e-30)
    return [call.rounded(call.step(x - mean) / root)]


def _layer(call: Call) -> Results:
    """Over the last axes; mean and reciprocal deviation are further results, of the type that ``stash_type`` says."""
    x, stash = call.array(0), ir.DataType(call.whole("stash_type", int(ir.DataType.FLOAT)))
    stash = stash if call.dtype in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16) else call.dtype
    axes = tuple(range(call.whole("axis", -1) % x.ndim, x.ndim))
    mean, variance = moments(call, x, axes, stash)
    root = call.step(np.sqrt(call.step(variance + call.number("epsilon", 1e-5), dtype=stash)), dtype=stash)
    unit = call.step(call.step(x - mean, dtype=stash) / root, dtype=stash)
    bias = call.optional(2)
    total = call.step(unit * call.array(1))
    y = call.rounded(total if bias is None else total + bias)
    return [y, call.rounded(mean, dtype=stash), call.rounded(1.0 / root, dtype=stash)]


def _local_response(call: Call) -> Results:
    """``x / (bias + alpha / size * sum of squares of neighbouring channels) ** beta``."""
    x, size = call.array(0), call.whole("size")
    before, after = (size - 1) // 2, size // 2
    squares = call.noise.operand(call.step(x * x), call.dtype, float(size))
    wide = np.pad(squares, [(0, 0), (before, after), *[(0, 0)] * (x.ndim - 2)])
    total = np.zeros_like(x)
    for place in range(size):
        total += wide[:, place : place + x.shape[1]]
    part = call.step(call.step(total, float(size)) * (call.number("alpha", 1e-4) / size))
    base = call.step(part + call.number("bias", 1.0))
    return [call.rounded(x / call.step(base ** call.number("beta", 0.75)))]


def _unit_length(call: Call) -> Results:
    """``x / ||x||`` along an axis; 0 where the norm is 0."""
    x, axis, power = call.array(0), call.whole("axis", -1), call.whole("p", 2)
    count = float(x.shape[axis])
    powers = call.noise.operand(call.step(np.abs(x) ** power), call.dtype, count)
    total = call.step(powers.sum(axis, keepdims=True), count)
    length = call.step(np.sqrt(total) if power == 2 else total)
    return [call.rounded(np.where(length == 0.0, 0.0, x / np.where(length == 0.0, 1.0, length)))]


HANDLERS: Mapping[str, Handler] = {
    "BatchNormalization": _batch,
    "InstanceNormalization": _instance,
    "LRN": _local_response,
    "LayerNormalization": _layer,
    "LpNormalization": _unit_length,
    "MeanVarianceNormalization": _mean_variance,
}
