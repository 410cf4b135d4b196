"""Quantization by its definition: ``(integer - zero point) * scale`` and back, halves to even, then saturated.

A perturbed value may round to the neighbouring integer: that step is its spread.
Source: ONNX operators, QuantizeLinear-23, DequantizeLinear-23, QLinearConv-10, QLinearMatMul-21.
"""

from __future__ import annotations

from collections.abc import Mapping

import ml_dtypes
import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.twin.call import Call, Handler, Results
from convertkit.onnx.twin.handlers.convolutions import convolution
from convertkit.onnx.twin.values import Tensor, real

_SINGLE = ir.DataType.FLOAT


def _quantize(call: Call) -> Results:
    x, scale = call.array(0), call.array(1)
    zero = call.given(2)
    named = call.whole("output_dtype")
    dtype = ir.DataType(named) if named else zero.dtype if isinstance(zero, Tensor) else ir.DataType.UINT8
    points = zero.array.astype(np.float64) if isinstance(zero, Tensor) else np.zeros(())
    exact = x / _laid_out(call, scale, x)
    # Even exact ties: runtimes multiply by 1 / scale, and integer kernels halve away from zero.
    steps = call.noise.within(call.step(exact, dtype=_SINGLE), _SINGLE, np.abs(exact))
    if dtype.is_integer():
        steps = call.noise.before_integers(steps)
    return [_rounded(steps, _laid_out(call, points, x), dtype, bool(call.whole("saturate", 1)))]


def _rounded(steps: Array, points: Array, dtype: ir.DataType, saturates: bool) -> Tensor:
    kind = dtype.numpy()
    if ir.DataType.from_numpy(kind).is_integer():
        limits = ml_dtypes.iinfo(kind)
        whole = np.clip(np.rint(steps) + points, float(limits.min), float(limits.max))
        return Tensor(np.nan_to_num(whole).astype(kind), dtype)
    values = steps + points
    if saturates:
        most = float(ml_dtypes.finfo(kind).max)
        values = np.where(np.isnan(values), values, np.clip(values, -most, most))
    return Tensor(values.astype(np.float32).astype(kind), dtype)


def _dequantize(call: Call) -> Results:
    stored, scale = call.tensor(0), call.tensor(1)
    zero = call.optional(2)
    steps = stored.array.astype(np.float64)
    if zero is not None:
        steps = steps - _laid_out(call, zero.astype(np.float64), steps)
    named = call.whole("output_dtype")
    dtype = ir.DataType(named) if named else scale.dtype
    return [call.rounded(steps * _laid_out(call, scale.array.astype(np.float64), steps), dtype=dtype)]


def _laid_out(call: Call, parameters: Array, x: Array) -> Array:
    """Scales or zero points as they meet ``x``: one for all, one for each slice of an axis, or one for each block."""
    if parameters.ndim == 0 or x.ndim == 0 or (parameters.ndim == 1 and parameters.size == 1):
        return parameters.reshape(())
    axis = call.whole("axis", 1) % x.ndim
    if parameters.ndim == 1:
        return parameters.reshape([-1 if each == axis else 1 for each in range(x.ndim)])
    block = call.whole("block_size") or -(-x.shape[axis] // parameters.shape[axis])
    return np.take(np.repeat(parameters, block, axis), range(x.shape[axis]), axis)


def _q_conv(call: Call) -> Results:
    """Operands: x, its scale and zero point, w, its, y's, and a bias in units of both scales."""
    scale_x, scale_w = call.array(1), call.array(4).reshape(-1)
    x = (call.array(0).astype(np.float64) - call.array(2)) * scale_x
    weight, tail = call.array(3).astype(np.float64), (1,) * (call.array(3).ndim - 1)
    points = np.asarray(call.array(5), np.float64).reshape(-1)
    weight = (weight - points.reshape(-1, *tail)) * scale_w.reshape(-1, *tail)
    bias = call.optional(8)
    offset = None if bias is None else bias.astype(np.float64) * scale_x * scale_w
    total = convolution(call, x, weight, offset)
    return [_requantized(call, total, call.array(6), call.tensor(7))]


def _q_matmul(call: Call) -> Results:
    """Operands: a, its scale and zero point, b, its, y's; parameters of a go by row, of b by column."""
    first = (call.array(0).astype(np.float64) - _by(call.array(2), -2)) * _by(call.array(1), -2)
    second = (call.array(3).astype(np.float64) - _by(call.array(5), -1)) * _by(call.array(4), -1)
    return [_requantized(call, np.matmul(first, second), call.array(6), call.tensor(7))]


def _by(parameters: Array, axis: int) -> Array:
    values = parameters.astype(np.float64)
    return values[:, None] if axis == -2 and values.ndim == 1 and values.size > 1 else values


def _requantized(call: Call, total: Array, scale: Array, zero: Tensor) -> Tensor:
    """Integer kernels sum exactly and round the product with one factor of three scales."""
    steps = call.noise.before_integers(call.step(total / scale, dtype=_SINGLE))
    return _rounded(steps, zero.array.astype(np.float64), zero.dtype, True)


def _dynamic(call: Call) -> Results:
    """uint8 over a range that holds 0.  Source: ONNX operators, DynamicQuantizeLinear-11."""
    x = call.array(0)
    low, high = min(0.0, float(x.min(initial=0.0))), max(0.0, float(x.max(initial=0.0)))
    width = call.step(np.asarray(high - low))
    scale = call.step(width / 255.0) if width else np.ones(())
    zero = np.rint(np.clip(call.step(-low / scale), 0.0, 255.0))
    steps = call.step(x / scale, dtype=_SINGLE)
    stored = _rounded(steps, zero, ir.DataType.UINT8, True)
    return [stored, real(scale, _SINGLE), Tensor(zero.astype(np.uint8), ir.DataType.UINT8)]


HANDLERS: Mapping[str, Handler] = {
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": _dynamic,
    "QLinearConv": _q_conv,
    "QLinearMatMul": _q_matmul,
    "QuantizeLinear": _quantize,
}
