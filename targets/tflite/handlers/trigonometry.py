"""Trigonometric and hyperbolic functions from SIN, COS, ATAN2, EXP and LOG."""

from __future__ import annotations

import numpy as np

from convertkit.onnx.registry import Registry
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.handlers.elementary import expm1, float_only, like, log1p
from convertkit.targets.tflite.tensor import Tensor

trigonometry = Registry()


@trigonometry.lowers("Tan", since=(7, 22))
def tan(b: Builder, x: Tensor) -> Tensor:
    float_only(x, "Tan")
    return _odd(b, x, b.div(b.sin(x), b.cos(x)))


@trigonometry.lowers("Atan", since=(7, 22))
def atan(b: Builder, x: Tensor) -> Tensor:
    float_only(x, "Atan")
    one = like(b, x, 1)
    ones = b.broadcast_to(one, x.shape) if x.is_static else b.fill(b.shape_of(x), one, x.shape)
    return b.atan2(x, ones)


@trigonometry.lowers("Asin", since=(7, 22))
def asin(b: Builder, x: Tensor) -> Tensor:
    """``atan2(x, sqrt((1 - x)(1 + x)))``."""
    float_only(x, "Asin")
    return b.atan2(x, _other_leg(b, x))


@trigonometry.lowers("Acos", since=(7, 22))
def acos(b: Builder, x: Tensor) -> Tensor:
    """``atan2(sqrt((1 - x)(1 + x)), x)``."""
    float_only(x, "Acos")
    return b.atan2(_other_leg(b, x), x)


@trigonometry.lowers("Sinh", since=(9, 22))
def sinh(b: Builder, x: Tensor) -> Tensor:
    """``(e + e / (e + 1)) / 2`` with ``e = expm1(|x|)``; for large arguments as a square, which overflows later."""
    float_only(x, "Sinh")
    size = b.abs(x)
    e = expm1(b, b.minimum(size, like(b, x, 20.0)))
    small = b.add(e, b.div(e, b.add(e, like(b, x, 1))))
    magnitude = b.select(b.less(size, like(b, x, 20.0)), b.mul(small, like(b, x, 0.5)), _half_exp(b, size))
    return _odd(b, x, b.select(b.less(x, like(b, x, 0)), b.neg(magnitude), magnitude))


@trigonometry.lowers("Cosh", since=(9, 22))
def cosh(b: Builder, x: Tensor) -> Tensor:
    float_only(x, "Cosh")
    size = b.abs(x)
    near = b.mul(b.add(b.exp(size), b.exp(b.neg(size))), like(b, x, 0.5))
    return b.select(b.less(size, like(b, x, 20.0)), near, _half_exp(b, size))


@trigonometry.lowers("Asinh", since=(9, 22))
def asinh(b: Builder, x: Tensor) -> Tensor:
    """``log1p(s + s² / (1 + sqrt(s² + 1)))`` of ``s = |x|``; ``log(s) + log(2)`` where squares would overflow."""
    float_only(x, "Asinh")
    size = b.abs(x)
    large = b.greater(size, like(b, x, 1e8))
    s = b.select(large, like(b, x, 1), size)
    square = b.square(s)
    root = b.sqrt(b.add(square, like(b, x, 1)))
    near = log1p(b, b.add(s, b.div(square, b.add(root, like(b, x, 1)))))
    far = b.add(b.log(b.maximum(size, like(b, x, 1))), like(b, x, np.log(2)))
    magnitude = b.select(large, far, near)
    return _odd(b, x, b.select(b.less(x, like(b, x, 0)), b.neg(magnitude), magnitude))


@trigonometry.lowers("Acosh", since=(9, 22))
def acosh(b: Builder, x: Tensor) -> Tensor:
    """``log1p(t + sqrt(t) sqrt(t + 2))`` with ``t = x - 1``: a product would hide that both are negative."""
    float_only(x, "Acosh")
    large = b.greater(x, like(b, x, 1e8))
    t = b.sub(b.select(large, like(b, x, 2), x), like(b, x, 1))
    near = log1p(b, b.add(t, b.mul(b.sqrt(t), b.sqrt(b.add(t, like(b, x, 2))))))
    far = b.add(b.log(b.maximum(x, like(b, x, 1))), like(b, x, np.log(2)))
    return b.select(large, far, near)


@trigonometry.lowers("Atanh", since=(9, 22))
def atanh(b: Builder, x: Tensor) -> Tensor:
    """``log1p(2 s / (1 - s)) / 2`` of ``s = |x|``; infinite at 1, as XNNPACK's LOG of infinity is 88."""
    float_only(x, "Atanh")
    size = b.abs(x)
    quotient = b.div(b.add(size, size), b.sub(like(b, x, 1), size))
    magnitude = b.mul(log1p(b, quotient), like(b, x, 0.5))
    magnitude = b.select(b.equal(size, like(b, x, 1)), like(b, x, np.inf), magnitude)
    return _odd(b, x, b.select(b.less(x, like(b, x, 0)), b.neg(magnitude), magnitude))


def _odd(b: Builder, x: Tensor, result: Tensor) -> Tensor:
    """``result``, but ``x`` itself where that is a zero of either sign, or NaN."""
    return b.select(b.greater(b.abs(x), like(b, x, 0)), result, x)


def _other_leg(b: Builder, x: Tensor) -> Tensor:
    one = like(b, x, 1)
    return b.sqrt(b.mul(b.sub(one, x), b.add(one, x)))


def _half_exp(b: Builder, size: Tensor) -> Tensor:
    half = b.exp(b.mul(size, like(b, size, 0.5)))
    return b.mul(b.mul(half, like(b, size, 0.5)), half)
