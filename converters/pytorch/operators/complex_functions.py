"""Functions of complex numbers by their definitions; each returns ``NotImplemented`` where no operand is complex."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from convertkit.converters.pytorch.operators.complex_parts import is_complex, joined, part, parts, product

_MOST_PRODUCTS = 16
"""The largest whole exponent that is written as products; beyond, the power of length and angle is closer."""


def over(x: Any, y: Any) -> Any:
    """Both divided by the larger part of ``y`` first, so that its square neither overflows nor vanishes."""
    if not is_complex((x, y)):
        return NotImplemented
    (a, b), (c, d) = parts(x), parts(y)
    if d is None:
        return joined(a / c, b / c)
    if not isinstance(c, Tensor):
        return product(torch.mul, x, 1 / y)
    scale = torch.maximum(c.abs(), d.abs())
    c, d = c / scale, d / scale
    length = (c * c + d * d) * scale
    if b is None:
        return joined(a * c / length, -a * d / length)
    return joined((a * c + b * d) / length, (b * c - a * d) / length)


def reciprocal(z: Tensor) -> Any:
    """One over ``z``."""
    return over(1.0, z) if z.is_complex() else NotImplemented


def log(z: Tensor) -> Any:
    """The logarithm of the length, and the angle."""
    if not z.is_complex():
        return NotImplemented
    real, imaginary = parts(z)
    return joined(torch.log(torch.hypot(real, imaginary)), torch.atan2(imaginary, real))


def sqrt(z: Tensor) -> Any:
    """The principal root, from the half that does not cancel."""
    if not z.is_complex():
        return NotImplemented
    real, imaginary = parts(z)
    half = torch.sqrt((torch.hypot(real, imaginary) + real.abs()) / 2)
    other = imaginary.abs() / (2 * torch.where(half > 0, half, 1.0))
    right = real >= 0
    return joined(torch.where(right, half, other), torch.copysign(torch.where(right, other, half), imaginary))


def power(z: Any, exponent: Any) -> Any:
    """Small whole exponents as products, others by the logarithm; 0 to a positive power is 0."""
    if not is_complex((z, exponent)):
        return NotImplemented
    if isinstance(exponent, (int, float)) and exponent == 0:
        return joined(torch.ones_like(part(z, 0)), torch.zeros_like(part(z, 0)))
    if isinstance(exponent, (int, float)) and exponent == 0.5:
        return sqrt(z)
    if isinstance(exponent, (int, float)) and exponent == int(exponent) and 0 < abs(exponent) <= _MOST_PRODUCTS:
        result = z
        for _ in range(int(abs(exponent)) - 1):
            result = result * z
        return result if exponent > 0 else torch.reciprocal(result)
    base = z if isinstance(z, Tensor) else torch.full((), z, device=exponent.device)
    base = base if base.is_complex() else joined(base, torch.zeros_like(base))
    result = torch.exp(torch.log(base) * exponent)
    vanishes = (part(base, 0) == 0) & (part(base, 1) == 0)
    if isinstance(exponent, Tensor):
        vanishes = vanishes & (part(exponent, 0) != 0)  # 0 to the power of 0 is not a number, as torch has it
    real, imaginary = parts(result)
    return joined(torch.where(vanishes, 0.0, real), torch.where(vanishes, 0.0, imaginary))


def cos(z: Tensor) -> Any:
    """``cos a cosh b - i sin a sinh b``."""
    if not z.is_complex():
        return NotImplemented
    a, b = parts(z)
    return joined(torch.cos(a) * torch.cosh(b), -torch.sin(a) * torch.sinh(b))


def sin(z: Tensor) -> Any:
    """``sin a cosh b + i cos a sinh b``."""
    if not z.is_complex():
        return NotImplemented
    a, b = parts(z)
    return joined(torch.sin(a) * torch.cosh(b), torch.cos(a) * torch.sinh(b))


def tanh(z: Tensor) -> Any:
    """By ``tanh(a + bi) = (sinh 2a + i sin 2b) / (cosh 2a + cos 2b)``, both sides divided by ``cosh 2a``."""
    if not z.is_complex():
        return NotImplemented
    a, b = parts(z)
    less = 1 / torch.cosh((2 * a).clamp(-80, 80))
    below = 1 + torch.cos(2 * b) * less
    return joined(torch.tanh(2 * a) / below, torch.sin(2 * b) * less / below)


def sgn(z: Tensor) -> Any:
    """Of length 1, or 0."""
    if not z.is_complex():
        return NotImplemented
    length = z.abs()
    return z / torch.where(length > 0, length, 1.0)
