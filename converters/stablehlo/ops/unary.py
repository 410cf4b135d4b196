"""Elementwise functions of one real tensor.

Where ONNX lacks a function, it is composed so that small arguments keep their relative precision.
"""

from __future__ import annotations

from collections.abc import Callable

from jaxlib.mlir.dialects import stablehlo as hlo

from convertkit.converters.stablehlo.builder import Builder
from convertkit.converters.stablehlo.registry import Handlers
from convertkit.converters.stablehlo.tensor import BF16, BOOL, F16, F64, UNSIGNED, Tensor

unary = Handlers()


def in_single(b: Builder, x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply a composed function in float32 where ``x`` is a 16-bit float, so that it rounds once."""
    return b.cast(function(b.widened(x)), x.dtype)


@unary.pointwise
def negate(b: Builder, op: hlo.NegOp, x: Tensor) -> Tensor:
    return b.neg(x)


@unary.pointwise
def absolute(b: Builder, op: hlo.AbsOp, x: Tensor) -> Tensor:
    return x if x.dtype in UNSIGNED else b.abs(x)


@unary.pointwise
def sign(b: Builder, op: hlo.SignOp, x: Tensor) -> Tensor:
    """-1, 0 or 1; NaN stays NaN."""
    # ONNX Runtime's 16-bit kernels make NaN 0, the others keep it.
    return (
        b.elementwise("Sign", x) if x.dtype not in (F16, BF16) else in_single(b, x, lambda w: b.elementwise("Sign", w))
    )


@unary.pointwise
def exponential(b: Builder, op: hlo.ExpOp, x: Tensor) -> Tensor:
    return b.exp(x)


@unary.pointwise
def exponential_minus_one(b: Builder, op: hlo.Expm1Op, x: Tensor) -> Tensor:
    return in_single(b, x, lambda wide: expm1(b, wide))


def expm1(b: Builder, x: Tensor) -> Tensor:
    """``exp(x) - 1 = tanh(x/2) · (exp(x) + 1)``, without cancellation near 0."""
    return b.mul(b.elementwise("Tanh", b.mul(x, 0.5)), b.add(b.exp(x), 1.0))


@unary.pointwise
def logarithm(b: Builder, op: hlo.LogOp, x: Tensor) -> Tensor:
    return b.log(x)


@unary.pointwise
def log_plus_one(b: Builder, op: hlo.Log1pOp, x: Tensor) -> Tensor:
    return in_single(b, x, lambda wide: log1p(b, wide))


LOG1P_END = 0.3
LOG1P_SERIES = tuple(2 / (2 * power + 1) for power in range(4, -1, -1))
"""Highest power first; the terms left out are below 3e-9 up to |x| = 0.3."""


def log1p(b: Builder, x: Tensor) -> Tensor:
    """``2 s (1 + s²/3 + s⁴/5 + …)`` with ``s = x / (2 + x)`` near 0, and ``log(1 + x)``.

    In double precision ``x · log(u) / (u - 1)`` with ``u = 1 + x``: the rounding of ``u`` cancels (Kahan), where the
    logarithm keeps all digits near 1, which XNNPACK's of float32 does not.
    """
    u = b.add(x, 1.0)
    if x.dtype == F64:
        trivial = b.logical_or(b.equal(u, 1.0), b.equal(u, float("inf")))
        return b.where(trivial, x, b.mul(x, b.div(b.log(u), b.sub(u, 1.0))))
    s = b.div(x, b.add(x, 2.0))
    square, series = b.mul(s, s), b.like(x, LOG1P_SERIES[0])
    for coefficient in LOG1P_SERIES[1:]:
        series = b.add(b.mul(series, square), coefficient)
    return b.where(b.less(b.abs(x), LOG1P_END), b.mul(s, series), b.log(u))


@unary.pointwise
def square_root(b: Builder, op: hlo.SqrtOp, x: Tensor) -> Tensor:
    return b.sqrt(x)


@unary.pointwise
def reciprocal_square_root(b: Builder, op: hlo.RsqrtOp, x: Tensor) -> Tensor:
    return in_single(b, x, lambda wide: b.elementwise("Reciprocal", b.sqrt(wide)))


@unary.pointwise
def cube_root(b: Builder, op: hlo.CbrtOp, x: Tensor) -> Tensor:
    def root(wide: Tensor) -> Tensor:
        size = b.elementwise("Pow", b.abs(wide), b.like(wide, 1 / 3))
        return b.where(b.less(wide, 0), b.neg(size), size)

    return in_single(b, x, root)


@unary.pointwise
def sine(b: Builder, op: hlo.SineOp, x: Tensor) -> Tensor:
    return b.sin(x)


@unary.pointwise
def cosine(b: Builder, op: hlo.CosineOp, x: Tensor) -> Tensor:
    return b.cos(x)


@unary.pointwise
def tangent(b: Builder, op: hlo.TanOp, x: Tensor) -> Tensor:
    if x.dtype == F64:
        return b.div(b.sin(x), b.cos(x))
    return b.elementwise("Tan", x)


@unary.pointwise
def hyperbolic_tangent(b: Builder, op: hlo.TanhOp, x: Tensor) -> Tensor:
    return b.elementwise("Tanh", x)


@unary.pointwise
def logistic(b: Builder, op: hlo.LogisticOp, x: Tensor) -> Tensor:
    return b.elementwise("Sigmoid", x)


@unary.pointwise
def floor(b: Builder, op: hlo.FloorOp, x: Tensor) -> Tensor:
    return b.floor(x)


@unary.pointwise
def ceil(b: Builder, op: hlo.CeilOp, x: Tensor) -> Tensor:
    return b.elementwise("Ceil", x)


@unary.pointwise
def round_even(b: Builder, op: hlo.RoundNearestEvenOp, x: Tensor) -> Tensor:
    return b.elementwise("Round", x)


@unary.pointwise
def round_away(b: Builder, op: hlo.RoundOp, x: Tensor) -> Tensor:
    """Halves go away from zero; adding one half first would round 0.49999997 up."""

    def rounded(wide: Tensor) -> Tensor:
        size = b.abs(wide)
        whole = b.floor(size)
        size = b.where(b.greater_equal(b.sub(size, whole), 0.5), b.add(whole, 1.0), whole)
        return b.where(b.less(wide, 0), b.neg(size), size)

    return in_single(b, x, rounded)


@unary.pointwise
def is_finite(b: Builder, op: hlo.IsFiniteOp, x: Tensor) -> Tensor:
    """Infinity minus itself is NaN, as is NaN."""
    return b.equal(b.sub(x, x), 0)


@unary.pointwise
def invert(b: Builder, op: hlo.NotOp, x: Tensor) -> Tensor:
    return b.logical_not(x) if x.dtype == BOOL else b.bit_not(x)
