"""Elementwise arithmetic on real tensors.

Semantics: the StableHLO specification; where it leaves a result open (integer division by zero,
float to integer out of range), what XLA computes.
"""

from __future__ import annotations

import math

import numpy as np
from jaxlib.mlir.dialects import stablehlo as hlo

from convertkit.converters.stablehlo.builder import Builder
from convertkit.converters.stablehlo.kernels import has_kernel
from convertkit.converters.stablehlo.registry import Handlers
from convertkit.converters.stablehlo.tensor import BOOL, F32, F64, UNSIGNED, Tensor, bits, is_float

arithmetic = Handlers()


@arithmetic.pointwise
def add(b: Builder, op: hlo.AddOp, x: Tensor, y: Tensor) -> Tensor:
    return b.logical_or(x, y) if x.dtype == BOOL else b.add(x, y)


@arithmetic.pointwise
def subtract(b: Builder, op: hlo.SubtractOp, x: Tensor, y: Tensor) -> Tensor:
    return b.sub(x, y)


@arithmetic.pointwise
def multiply(b: Builder, op: hlo.MulOp, x: Tensor, y: Tensor) -> Tensor:
    return b.logical_and(x, y) if x.dtype == BOOL else b.mul(x, y)


@arithmetic.pointwise
def divide(b: Builder, op: hlo.DivOp, x: Tensor, y: Tensor) -> Tensor:
    return b.div(x, y) if is_float(x.dtype) else integer_quotient(b, x, y)


@arithmetic.pointwise
def remainder(b: Builder, op: hlo.RemOp, x: Tensor, y: Tensor) -> Tensor:
    """The sign is the dividend's; ``x % 0`` is ``x`` for integers, as in XLA."""
    if is_float(x.dtype):
        return b.elementwise("Mod", x, y, attributes={"fmod": 1})
    # ONNX Runtime's integer fmod goes through double and loses bits beyond 2^53.
    rest = b.sub(x, b.mul(integer_quotient(b, x, y), y))
    return rest if _safe_divisor(y) else b.where(b.equal(y, 0), x, rest)


def integer_quotient(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    """Truncating division; ``x / 0`` is -1 and the least integer by -1 wraps, as in XLA.

    Both trap in the kernel, so a divisor that could be either is replaced by 1 first.
    """
    if _safe_divisor(y):
        return b.div(x, y)
    zero = b.equal(y, 0)
    if x.dtype in UNSIGNED:
        return b.where(zero, b.like(x, (1 << bits(x.dtype)) - 1), b.div(x, b.where(zero, 1, y)))
    minus = b.equal(y, -1)
    quotient = b.div(x, b.where(b.logical_or(zero, minus), 1, y))
    return b.where(zero, -1, b.where(minus, b.neg(x), quotient))


def _safe_divisor(y: Tensor) -> bool:
    return y.const is not None and not bool(np.any((y.const == 0) | (y.const == -1)))


@arithmetic.pointwise
def maximum(b: Builder, op: hlo.MaxOp, x: Tensor, y: Tensor) -> Tensor:
    return b.maximum(x, y)


@arithmetic.pointwise
def minimum(b: Builder, op: hlo.MinOp, x: Tensor, y: Tensor) -> Tensor:
    return b.minimum(x, y)


@arithmetic.pointwise
def power(b: Builder, op: hlo.PowOp, x: Tensor, y: Tensor) -> Tensor:
    if is_float(x.dtype):
        return b.elementwise("Pow", x, y)
    return integer_power(b, x, y)


def integer_power(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    """Square and multiply, modulo 2^n; a negative exponent gives 0 unless the base is ±1."""
    negative = None if y.dtype in UNSIGNED else b.less(y, 0)
    exponent = y if negative is None else b.where(negative, 0, y)
    width = bits(x.dtype)
    known = None if y.const is None else int(np.max(y.const, initial=0))
    steps = width if known is None else max(known, 0).bit_length()
    result, square = b.like(x, 1), x
    for step in range(steps):
        half = b.div(exponent, 2)
        odd = b.equal(b.sub(exponent, b.mul(half, 2)), 1)
        result = b.where(odd, b.mul(result, square), result)
        exponent = half
        if step + 1 < steps:
            square = b.mul(square, square)
    if negative is None:
        return result
    flipped = b.where(b.equal(b.sub(y, b.mul(b.div(y, 2), 2)), 0), 1, -1)
    inverse = b.where(b.equal(x, 1), 1, b.where(b.equal(x, -1), flipped, b.like(x, 0)))
    return b.where(negative, inverse, result)


@arithmetic.pointwise
def atan2(b: Builder, op: hlo.Atan2Op, y: Tensor, x: Tensor) -> Tensor:
    return angle(b, y, x)


def angle(b: Builder, y: Tensor, x: Tensor) -> Tensor:
    """The angle of the point (x, y), signed zeros, infinities and NaN as in C's ``atan2``.

    Chosen by comparison, as LiteRT's maximum and minimum drop NaN.
    """
    if y.dtype not in (F32, F64):
        return b.cast(angle(b, b.cast(y, F32), b.cast(x, F32)), y.dtype)
    ay, ax = b.abs(y), b.abs(x)
    steep, same = b.greater(ay, ax), b.equal(ay, ax)
    big, small = b.where(steep, ay, ax), b.where(steep, ax, ay)
    ratio = b.where(same, b.where(b.equal(big, 0), 0.0, b.like(x, 1)), b.div(small, big))
    turn = arctangent(b, ratio)
    turn = b.where(steep, b.sub(b.like(x, math.pi / 2), turn), turn)
    turn = b.where(sign_bit(b, x), b.sub(b.like(x, math.pi), turn), turn)
    return b.mul(turn, b.where(sign_bit(b, y), -1.0, b.like(y, 1.0)))  # ONNX Runtime's Where makes 0.0 of -0.0


def sign_bit(b: Builder, x: Tensor) -> Tensor:
    """Whether a float is negative, minus zero included (through the sign of its reciprocal)."""
    return b.logical_or(b.less(x, 0), b.logical_and(b.equal(x, 0), b.less(b.div(b.like(x, 1), x), 0)))


def arctangent(b: Builder, x: Tensor) -> Tensor:
    """``Atan``; in double precision by reduction to |t| ≤ tan(π/16) and its series."""
    if has_kernel("Atan", x.dtype) or x.dtype != F64:
        return b.elementwise("Atan", x)
    magnitude = b.abs(x)
    swapped = b.greater(magnitude, 1.0)
    t = b.where(swapped, b.div(b.like(x, 1.0), magnitude), magnitude)
    # tan(a/2) = t / (1 + sqrt(1 + t²)), three times, leaves |t| below 0.1.
    for _ in range(3):
        t = b.div(t, b.add(b.sqrt(b.add(b.mul(t, t), 1.0)), 1.0))
    square = b.mul(t, t)
    series = b.like(x, 0.0)
    for power_ in range(17, -1, -1):
        series = b.add(b.mul(series, square), (-1.0) ** power_ / (2 * power_ + 1))
    turn = b.mul(b.mul(t, series), 8.0)
    turn = b.where(swapped, b.sub(b.like(x, math.pi / 2), turn), turn)
    return b.where(b.less(x, 0), b.neg(turn), b.where(b.equal(x, 0), x, turn))


@arithmetic.pointwise
def clamp(b: Builder, op: hlo.ClampOp, low: Tensor, x: Tensor, high: Tensor) -> Tensor:
    return b.minimum(b.maximum(x, low), high)


@arithmetic.pointwise
def select(b: Builder, op: hlo.SelectOp, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return chosen(b, condition, x, y)


def chosen(b: Builder, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """``x`` where the condition holds, else ``y``; bools included."""
    return b.where(condition, x, y)


_SYMBOLS = {"EQ": "Equal", "LT": "Less", "LE": "LessOrEqual", "GT": "Greater", "GE": "GreaterOrEqual"}


@arithmetic.pointwise
def compare(b: Builder, op: hlo.CompareOp, x: Tensor, y: Tensor) -> Tensor:
    """Comparison; in ``TOTALORDER`` floats are compared by their bits: -NaN, -∞, …, -0, +0, …, +∞, +NaN."""
    from convertkit.converters.stablehlo.mlir import text
    from convertkit.converters.stablehlo.ops.sort import ordered_bits

    direction = text(op.comparison_direction)
    if op.compare_type is not None and text(op.compare_type) == "TOTALORDER":
        x, y = (ordered_bits(b, b.full(each)) for each in (x, y))
    return comparison(b, direction, x, y)


def comparison(b: Builder, direction: str, x: Tensor, y: Tensor) -> Tensor:
    """One of EQ, NE, LT, LE, GT, GE."""
    if direction == "NE":
        return b.logical_not(b.equal(x, y))
    return b.elementwise(_SYMBOLS[direction], x, y, dtype=BOOL)
