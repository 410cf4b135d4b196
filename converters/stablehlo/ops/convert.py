"""Changes of element type: conversion, bit casts, reduced precision."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from jaxlib.mlir.dialects import stablehlo as hlo

from convertkit.converters.stablehlo.builder import Builder
from convertkit.converters.stablehlo.mlir import dtype_of, integer, shape_of
from convertkit.converters.stablehlo.registry import Handlers
from convertkit.converters.stablehlo.tensor import (
    BOOL,
    F16,
    F64,
    U8,
    U16,
    U32,
    U64,
    UNSIGNED,
    Tensor,
    bits,
    constant,
    finfo,
    is_float,
)

conversions = Handlers()

_UNSIGNED_OF_WIDTH = {8: U8, 16: U16, 32: U32, 64: U64}


@conversions.pointwise
def convert(b: Builder, op: hlo.ConvertOp, x: Tensor) -> Tensor:
    return converted(b, x, dtype_of(op.result.type))


def converted(b: Builder, x: Tensor, dtype: ir.DataType) -> Tensor:
    """The value in another dtype: floats round to nearest even, integers wrap, float to integer saturates."""
    if dtype == BOOL and x.dtype != BOOL:
        return b.logical_not(b.equal(x, 0))
    if is_float(x.dtype) and not is_float(dtype) and dtype != BOOL:
        return _saturated(b, b.widened(x), dtype)
    if x.dtype == F64 and dtype == F16 and isinstance(x.core, ir.Value):
        return _double_to_half(b, x)
    return b.cast(x, dtype)


def _saturated(b: Builder, x: Tensor, dtype: ir.DataType) -> Tensor:
    """Truncate; out of range goes to the nearest integer, NaN to 0, as XLA does."""
    limits = np.iinfo(dtype.numpy())
    if bits(dtype) <= 16 or (x.dtype == F64 and bits(dtype) <= 32):
        inside = b.minimum(b.maximum(x, float(limits.min)), float(limits.max))
        return b.cast(b.where(b.is_nan(x), 0.0, inside), dtype)
    too_big = b.greater_equal(x, float(limits.max))  # rounds up to the power of two
    too_small = b.less(x, float(limits.min))
    outside = b.logical_or(b.logical_or(too_big, too_small), b.is_nan(x))
    whole = b.cast(b.where(outside, 0.0, x), dtype)
    if dtype not in UNSIGNED:
        whole = b.where(too_small, int(limits.min), whole)
    return b.where(too_big, int(limits.max), whole)


def _double_to_half(b: Builder, x: Tensor) -> Tensor:
    """Round once: the kernel goes through float32, which double-rounds near a tie.

    Adding ``1.5 · 2^(e+42)`` rounds to the half's last place; ``e`` comes from a power of two that
    float32 holds, found by the exponent bits of the value.
    """
    exponent = b.bit_and(b.bitcast(b.abs(x), U64), 0x7FF0000000000000)
    least = b.maximum(b.bitcast(exponent, F64), 2.0**-14)
    magic = b.mul(least, 1.5 * 2.0**42)
    inside = b.less(b.abs(x), 65536.0)
    return b.cast(b.where(inside, b.sub(b.add(x, magic), magic), x), F16)


@conversions.partwise
def bitcast_convert(b: Builder, op: hlo.BitcastConvertOp, x: Tensor) -> Tensor:
    """Reinterpret bits; a change of width adds or removes a last axis, least significant part first."""
    dtype = dtype_of(op.result.type)
    have, want = bits(x.dtype), bits(dtype)
    if BOOL in (x.dtype, dtype) or have == want:
        return b.bitcast(x, dtype)
    small, large = _UNSIGNED_OF_WIDTH[min(have, want)], _UNSIGNED_OF_WIDTH[max(have, want)]
    count = max(have, want) // min(have, want)
    places = constant((np.arange(count) * min(have, want)).astype(np.uint64))
    if have > want:
        whole = b.cast(b.bitcast(x, large), U64)
        shifted = b.elementwise(
            "BitShift", b.unsqueeze(b.full(whole), [x.rank]), places, attributes={"direction": "RIGHT"}
        )
        return b.bitcast(b.cast(shifted, small), dtype)
    pieces = b.cast(b.bitcast(x, small), U64)
    placed = b.elementwise("BitShift", pieces, places, attributes={"direction": "LEFT"})
    total = placed
    for part in range(count):
        piece = b.squeeze(b.take(placed, x.rank - 1, part, part + 1), [x.rank - 1])
        total = piece if part == 0 else b.bit_or(total, piece)
    result = b.bitcast(b.cast(total, large), dtype)
    return b.reshape(result, shape_of(op.result.type)) if None not in shape_of(op.result.type) else result


@conversions.pointwise
def reduce_precision(b: Builder, op: hlo.ReducePrecisionOp, x: Tensor) -> Tensor:
    return rounded_to(b, x, integer(op.exponent_bits), integer(op.mantissa_bits))


def rounded_to(b: Builder, x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
    """Round to nearest even in a smaller format; overflow gives infinity, underflow a signed zero."""
    width, own = bits(x.dtype), finfo(x.dtype)
    whole = _UNSIGNED_OF_WIDTH[width]
    raw = b.cast(b.bitcast(x, whole), U64)
    sign = b.bit_and(raw, 1 << (width - 1))
    size = b.bit_xor(raw, sign)
    if mantissa_bits < own.nmant:
        drop = own.nmant - mantissa_bits
        shift = b.like(raw, drop)
        odd = b.bit_and(b.elementwise("BitShift", size, shift, attributes={"direction": "RIGHT"}), 1)
        size = b.add(b.add(size, odd), (1 << (drop - 1)) - 1)
        size = b.bit_and(size, (1 << (width - 1)) - (1 << drop))
    own_exponent = width - 1 - own.nmant
    if exponent_bits < own_exponent:
        bias, target = (1 << (own_exponent - 1)) - 1, (1 << (exponent_bits - 1)) - 1
        greatest, least = (bias + target) << own.nmant, (bias - target + 1) << own.nmant
        infinity = ((1 << own_exponent) - 1) << own.nmant
        size = b.where(b.greater_equal(size, greatest + (1 << own.nmant)), b.like(size, infinity), size)
        size = b.where(b.less(size, least), b.like(size, 0), size)
    result = b.bitcast(b.cast(b.bit_or(size, sign), whole), x.dtype)
    return b.where(b.is_nan(x), x, result)
