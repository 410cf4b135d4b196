"""Operators on complex numbers.

StableHLO's own expansion (``stablehlo-complex-math-expander``) has turned most functions into real
arithmetic before; what remains is here.
"""

from __future__ import annotations

from jaxlib.mlir.dialects import stablehlo as hlo

from convertkit.converters.stablehlo import complex_math as cm
from convertkit.converters.stablehlo.builder import Builder
from convertkit.converters.stablehlo.mlir import dtype_of, is_complex, text
from convertkit.converters.stablehlo.ops.arithmetic import angle, comparison
from convertkit.converters.stablehlo.ops.convert import converted
from convertkit.converters.stablehlo.ops.dot import zeros
from convertkit.converters.stablehlo.ops.unary import expm1, log1p
from convertkit.converters.stablehlo.registry import Handlers
from convertkit.converters.stablehlo.tensor import Complex, Operand, Tensor
from convertkit.errors import Unsupported

complexes = Handlers()


@complexes.complex
def make(b: Builder, op: hlo.ComplexOp, re: Tensor, im: Tensor) -> Complex:
    return Complex(re, im)


@complexes.complex
def real(b: Builder, op: hlo.RealOp, x: Complex) -> Tensor:
    return x.re


@complexes.complex
def imag(b: Builder, op: hlo.ImagOp, x: Complex) -> Tensor:
    return x.im


@complexes.pointwise
def real_of_real(b: Builder, op: hlo.RealOp, x: Tensor) -> Tensor:
    return x


@complexes.pointwise
def imag_of_real(b: Builder, op: hlo.ImagOp, x: Tensor) -> Tensor:
    return b.sub(x, x)


@complexes.complex
def add(b: Builder, op: hlo.AddOp, x: Complex, y: Complex) -> Complex:
    return cm.add(b, x, y)


@complexes.complex
def subtract(b: Builder, op: hlo.SubtractOp, x: Complex, y: Complex) -> Complex:
    return cm.sub(b, x, y)


@complexes.complex
def multiply(b: Builder, op: hlo.MulOp, x: Complex, y: Complex) -> Complex:
    return cm.mul(b, x, y)


@complexes.complex
def divide(b: Builder, op: hlo.DivOp, x: Complex, y: Complex) -> Complex:
    return cm.div(b, x, y)


@complexes.complex
def negate(b: Builder, op: hlo.NegOp, x: Complex) -> Complex:
    return Complex(b.neg(x.re), b.neg(x.im))


@complexes.complex
def absolute(b: Builder, op: hlo.AbsOp, x: Complex) -> Tensor:
    return cm.magnitude(b, x)


@complexes.complex
def sign(b: Builder, op: hlo.SignOp, x: Complex) -> Complex:
    """The quotient ``x / |x|``, and 0 for 0."""
    size = cm.magnitude(b, x)
    zero = b.equal(size, 0.0)
    safe = b.where(zero, 1.0, size)
    return Complex(b.div(x.re, safe), b.div(x.im, safe))


@complexes.complex
def convert(b: Builder, op: hlo.ConvertOp, x: Operand) -> Operand:
    """A real number gets the imaginary part 0; the real part of a complex one is kept."""
    dtype = dtype_of(op.result.type)
    if not isinstance(x, Complex):
        whole = converted(b, x, dtype)
        return Complex(whole, zeros(b, whole))
    if not is_complex(op.result.type):
        return converted(b, x.re, dtype)
    return Complex(converted(b, x.re, dtype), converted(b, x.im, dtype))


@complexes.complex
def compare(b: Builder, op: hlo.CompareOp, x: Complex, y: Complex) -> Tensor:
    """Complex numbers are equal or not; they have no order."""
    direction = text(op.comparison_direction)
    same = b.logical_and(comparison(b, "EQ", x.re, y.re), comparison(b, "EQ", x.im, y.im))
    if direction == "EQ":
        return same
    if direction != "NE":
        raise Unsupported(f"complex numbers compared by {direction}")
    return b.logical_not(same)


@complexes.complex
def select(b: Builder, op: hlo.SelectOp, condition: Tensor, x: Complex, y: Complex) -> Complex:
    return Complex(b.where(condition, x.re, y.re), b.where(condition, x.im, y.im))


@complexes.complex
def exponential(b: Builder, op: hlo.ExpOp, x: Complex) -> Complex:
    return _exp(b, x)


def _exp(b: Builder, x: Complex) -> Complex:
    size = b.exp(x.re)
    im = b.mul(size, b.sin(x.im))
    # An angle of 0 keeps a real infinity real.
    return Complex(b.mul(size, b.cos(x.im)), b.where(b.equal(x.im, 0.0), x.im, im))


@complexes.complex
def exponential_minus_one(b: Builder, op: hlo.Expm1Op, x: Complex) -> Complex:
    """``expm1(a)·cos(b) - 2·sin²(b/2)``, without cancellation near 0."""
    half = b.sin(b.mul(x.im, 0.5))
    re = b.sub(b.mul(expm1(b, x.re), b.cos(x.im)), b.mul(b.mul(half, half), 2.0))
    return Complex(re, b.mul(b.exp(x.re), b.sin(x.im)))


@complexes.complex
def log(b: Builder, op: hlo.LogOp, x: Complex) -> Complex:
    return _log(b, x)


def _log(b: Builder, x: Complex) -> Complex:
    return Complex(b.log(cm.magnitude(b, x)), angle(b, x.im, x.re))


@complexes.complex
def log_plus_one(b: Builder, op: hlo.Log1pOp, x: Complex) -> Complex:
    """``log1p(a² + 2a + b²) / 2``, without cancellation near 0."""
    square = b.add(b.mul(x.re, b.add(x.re, 2.0)), b.mul(x.im, x.im))
    shifted = Complex(b.add(x.re, 1.0), x.im)
    near = b.less(b.abs(square), 0.5)
    size = b.where(near, b.mul(log1p(b, square), 0.5), b.log(cm.magnitude(b, shifted)))
    return Complex(size, angle(b, x.im, shifted.re))


@complexes.complex
def power(b: Builder, op: hlo.PowOp, x: Complex, y: Complex) -> Complex:
    """``exp(y · log x)``; 0 to the power 0 is 1, to any other power with positive real part 0."""
    logarithm = _log(b, x)
    result = _exp(b, cm.mul(b, y, logarithm))
    zero = b.logical_and(b.equal(x.re, 0.0), b.equal(x.im, 0.0))
    one = b.logical_and(b.equal(y.re, 0.0), b.equal(y.im, 0.0))
    at_zero = b.where(one, b.like(x.re, 1.0), 0.0)
    return Complex(b.where(zero, at_zero, result.re), b.where(zero, 0.0, result.im))


@complexes.complex
def square_root(b: Builder, op: hlo.SqrtOp, x: Complex) -> Complex:
    """Half the angle; the greater part is computed first and the other divided out of it."""
    size = cm.magnitude(b, x)
    greater = b.sqrt(b.mul(b.add(size, b.abs(x.re)), 0.5))
    zero = b.equal(greater, 0.0)
    lesser = b.div(b.mul(b.abs(x.im), 0.5), b.where(zero, 1.0, greater))
    right = b.greater_equal(x.re, 0.0)
    im = b.where(right, lesser, greater)
    return Complex(b.where(right, greater, lesser), b.where(b.less(x.im, 0.0), b.neg(im), im))


@complexes.complex
def reciprocal_square_root(b: Builder, op: hlo.RsqrtOp, x: Complex) -> Complex:
    size = b.elementwise("Reciprocal", b.sqrt(cm.magnitude(b, x)))
    turn = b.mul(angle(b, x.im, x.re), -0.5)
    return Complex(b.mul(size, b.cos(turn)), b.mul(size, b.sin(turn)))


@complexes.complex
def cube_root(b: Builder, op: hlo.CbrtOp, x: Complex) -> Complex:
    size = b.elementwise("Pow", cm.magnitude(b, x), b.like(x.re, 1 / 3))
    turn = b.mul(angle(b, x.im, x.re), 1 / 3)
    return Complex(b.mul(size, b.cos(turn)), b.mul(size, b.sin(turn)))


@complexes.complex
def sine(b: Builder, op: hlo.SineOp, x: Complex) -> Complex:
    sinh, cosh = _hyperbolic(b, x.im)
    return Complex(b.mul(b.sin(x.re), cosh), b.mul(b.cos(x.re), sinh))


@complexes.complex
def cosine(b: Builder, op: hlo.CosineOp, x: Complex) -> Complex:
    sinh, cosh = _hyperbolic(b, x.im)
    return Complex(b.mul(b.cos(x.re), cosh), b.neg(b.mul(b.sin(x.re), sinh)))


def _hyperbolic(b: Builder, x: Tensor) -> tuple[Tensor, Tensor]:
    """``sinh`` and ``cosh`` from ``expm1``, exact near 0."""
    small = expm1(b, x)
    inverse = b.div(small, b.add(small, 1.0))
    up, down = b.exp(x), b.exp(b.neg(x))
    near = b.less(b.abs(x), 1.0)
    sinh = b.where(near, b.mul(b.add(small, inverse), 0.5), b.mul(b.sub(up, down), 0.5))
    return sinh, b.mul(b.add(up, down), 0.5)


@complexes.complex
def tangent(b: Builder, op: hlo.TanOp, x: Complex) -> Complex:
    """``tan(z) = -i · tanh(i z)``."""
    turned = _tanh(b, Complex(b.neg(x.im), x.re))
    return Complex(turned.im, b.neg(turned.re))


@complexes.complex
def hyperbolic_tangent(b: Builder, op: hlo.TanhOp, x: Complex) -> Complex:
    return _tanh(b, x)


def _tanh(b: Builder, x: Complex) -> Complex:
    """Kahan's form: ``t = tan b``, ``s = sinh a``, ``(ρ β s + i t) / (1 + β s²)`` with ``β = 1 + t²``."""
    sinh, _ = _hyperbolic(b, b.minimum(b.maximum(x.re, -20.0), 20.0))
    tan = b.div(b.sin(x.im), b.cos(x.im))
    beta = b.add(b.mul(tan, tan), 1.0)
    rho = b.sqrt(b.add(b.mul(sinh, sinh), 1.0))
    below = b.add(b.mul(beta, b.mul(sinh, sinh)), 1.0)
    far = b.greater_equal(b.abs(x.re), 20.0)
    return Complex(
        b.where(far, b.elementwise("Sign", x.re), b.div(b.mul(b.mul(beta, rho), sinh), below)),
        b.where(far, 0.0, b.div(tan, below)),
    )


@complexes.complex
def logistic(b: Builder, op: hlo.LogisticOp, x: Complex) -> Complex:
    """``1 / (1 + exp(-x))``."""
    grown = _exp(b, Complex(b.neg(x.re), b.neg(x.im)))
    one = Complex(b.like(x.re, 1.0), b.like(x.im, 0.0))
    return cm.div(b, one, cm.add(b, grown, one))


@complexes.complex
def is_finite(b: Builder, op: hlo.IsFiniteOp, x: Complex) -> Tensor:
    return b.logical_and(b.equal(b.sub(x.re, x.re), 0.0), b.equal(b.sub(x.im, x.im), 0.0))
