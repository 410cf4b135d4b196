"""Arithmetic of complex numbers as pairs of real tensors."""

from __future__ import annotations

from convertkit.converters.stablehlo.builder import Builder
from convertkit.converters.stablehlo.tensor import Complex, Tensor


def add(b: Builder, x: Complex, y: Complex) -> Complex:
    """Sum."""
    return Complex(b.add(x.re, y.re), b.add(x.im, y.im))


def sub(b: Builder, x: Complex, y: Complex) -> Complex:
    """Difference."""
    return Complex(b.sub(x.re, y.re), b.sub(x.im, y.im))


def mul(b: Builder, x: Complex, y: Complex) -> Complex:
    """Product."""
    re = b.sub(b.mul(x.re, y.re), b.mul(x.im, y.im))
    return Complex(re, b.add(b.mul(x.re, y.im), b.mul(x.im, y.re)))


def scale(b: Builder, x: Complex, factor: Tensor | float) -> Complex:
    """Product with a real number."""
    return Complex(b.mul(x.re, factor), b.mul(x.im, factor))


def div(b: Builder, x: Complex, y: Complex) -> Complex:
    """Quotient by Smith's method: scaled by the greater part of the divisor, so that squares cannot overflow."""
    wide = b.greater_equal(b.abs(y.re), b.abs(y.im))
    big, small = b.where(wide, y.re, y.im), b.where(wide, y.im, y.re)
    ratio = b.div(small, big)
    divisor = b.add(big, b.mul(small, ratio))
    first, second = b.where(wide, x.re, x.im), b.where(wide, x.im, x.re)
    re = b.div(b.add(first, b.mul(second, ratio)), divisor)
    cross = b.div(b.sub(second, b.mul(first, ratio)), divisor)
    return Complex(re, b.where(wide, cross, b.neg(cross)))


def magnitude(b: Builder, x: Complex) -> Tensor:
    """Absolute value, scaled by the greater part."""
    a, c = b.abs(x.re), b.abs(x.im)
    big, small = b.maximum(a, c), b.minimum(a, c)
    ratio = b.div(small, big)
    size = b.mul(big, b.sqrt(b.add(b.mul(ratio, ratio), 1.0)))
    trivial = b.logical_or(b.equal(big, 0.0), b.equal(big, float("inf")))
    return b.where(trivial, big, size)
