"""Quantization as plain arithmetic, where no integer kernel takes part: blocked, per axis, or of computed scales."""

from __future__ import annotations

import numpy as np

from convertkit.errors import UnknownSize, Unsupported
from convertkit.onnx.registry import Registry
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.handlers.comparisons import converted
from convertkit.targets.tflite.handlers.elementary import dtype_named, float_only, like
from convertkit.targets.tflite.tensor import DYNAMIC, DType, Tensor

quantization = Registry()

_LIMITED: tuple[DType, ...] = ("int8", "uint8", "int16", "uint16")


def _quantized(b: Builder, x: Tensor, scale: Tensor, point: Tensor | None, to: DType, axis: int, block: int) -> Tensor:
    """``saturate(round_half_even(x / scale) + zero_point)``."""
    float_only(x, "QuantizeLinear")
    if to not in _LIMITED:
        raise Unsupported(f"quantization to {to}")
    whole = b.round(b.div(x, _spread(b, scale, x, axis, block)))
    if point is not None:
        whole = b.add(whole, _spread(b, b.cast(point, "float32"), x, axis, block))
    ends = np.iinfo(to)
    return b.cast(b.minimum(b.maximum(whole, like(b, whole, ends.min)), like(b, whole, ends.max)), to)


def _dequantized(b: Builder, x: Tensor, scale: Tensor, point: Tensor | None, axis: int, block: int) -> Tensor:
    """``(x - zero_point) * scale``; int32 has no zero point."""
    real = converted(b, x, "float32")
    if point is not None:
        real = b.sub(real, _spread(b, b.cast(point, "float32"), x, axis, block))
    return b.mul(real, _spread(b, scale, x, axis, block))


def _spread(b: Builder, values: Tensor, x: Tensor, axis: int, block: int) -> Tensor:
    """Scales or zero points as they meet ``x``: one for all, one for each place of an axis, or for each block."""
    if values.rank == 0 or values.shape == (1,):
        return b.reshape(values, ())
    axis %= x.rank
    if values.rank == 1:
        return b.reshape(values, tuple(values.shape[0] if place == axis else 1 for place in range(x.rank)))
    if x.shape[axis] == DYNAMIC:
        raise UnknownSize("blocks along an axis whose size is only known at run time")
    places = np.minimum(np.arange(x.shape[axis]) // block, values.shape[axis] - 1).astype(np.int32)
    if values.constant is not None:
        return b.constant(np.take(values.constant, places, axis))
    return b.gather(values, b.constant(places), axis)


def _target(point: Tensor | None, output_dtype: int = 0) -> DType:
    if point is not None:
        return point.dtype
    return dtype_named(output_dtype) if output_dtype else "uint8"


@quantization.lowers("QuantizeLinear", since=13)
def quantize_13(b: Builder, x: Tensor, scale: Tensor, point: Tensor | None = None, *, axis: int = 1) -> Tensor:
    return _quantized(b, x, scale, point, _target(point), axis, 0)


@quantization.lowers("QuantizeLinear", since=19)
def quantize_19(
    b: Builder, x: Tensor, scale: Tensor, point: Tensor | None = None, *, axis: int = 1, saturate: int = 1
) -> Tensor:
    return _quantized(b, x, scale, point, _target(point), axis, 0)


@quantization.lowers("QuantizeLinear", since=21)
def quantize_21(
    b: Builder,
    x: Tensor,
    scale: Tensor,
    point: Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    saturate: int = 1,
) -> Tensor:
    return _quantized(b, x, scale, point, _target(point, output_dtype), axis, block_size)


@quantization.lowers("QuantizeLinear", since=(23, 24, 25, 28))
def quantize_23(
    b: Builder,
    x: Tensor,
    scale: Tensor,
    point: Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Tensor:
    if precision not in (0, 1):
        raise Unsupported(f"precision {precision}: the quotient is computed in float32")
    return _quantized(b, x, scale, point, _target(point, output_dtype), axis, block_size)


@quantization.lowers("DequantizeLinear", since=(13, 19))
def dequantize_13(b: Builder, x: Tensor, scale: Tensor, point: Tensor | None = None, *, axis: int = 1) -> Tensor:
    return _dequantized(b, x, scale, point, axis, 0)


@quantization.lowers("DequantizeLinear", since=21)
def dequantize_21(
    b: Builder, x: Tensor, scale: Tensor, point: Tensor | None = None, *, axis: int = 1, block_size: int = 0
) -> Tensor:
    return _dequantized(b, x, scale, point, axis, block_size)


@quantization.lowers("DequantizeLinear", since=(23, 24, 25, 28))
def dequantize_23(
    b: Builder,
    x: Tensor,
    scale: Tensor,
    point: Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Tensor:
    if output_dtype not in (0, 1):
        raise Unsupported(f"output_dtype {output_dtype}: the product is computed in float32")
    return _dequantized(b, x, scale, point, axis, block_size)
