"""Bessel functions of order 0 and 1 that torch's ONNX exporter lacks, in float32.

Polynomials near zero, and beyond 3 (of the modified ones, 2) a modulus and a phase in powers of the inverse: the forms
of Abramowitz and Stegun 9.4 and 9.8, their coefficients fitted at Chebyshev's nodes in float64, good to 3e-9.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from convertkit.converters.pytorch.operators.special import modified_bessel, polynomial

_ATEN, _PRIMS = torch.ops.aten, torch.ops.prims
_END, _MODIFIED_END = 3.0, 2.0
_NEAR = {
    0: (0.999999999, -2.24999988, 1.26562306, -0.316394552, 0.0444609475, -0.00395447928, 0.000212950177),
    1: (0.5, -0.562499992, 0.210937377, -0.0395500402, 0.00444733108, -0.00033054732, 1.55247155e-05),
}
"""J₀, and J₁ / x, in powers of (x / 3)²."""
_REST = {
    0: (0.367466905, 0.605593949, -0.743507507, 0.253020057, -0.0426612616, 0.00434677152, -0.000295137934,
        1.26920946e-05),
    1: (0.0245785095, 0.240923143, -0.146299086, 0.0347748799, -0.00454944146, 0.000380004879, -2.19394486e-05,
        8.32297426e-07),
}  # fmt: skip
"""Y₀ without 2/π log(x/2) J₀, and Y₁ without that of J₁ and 2/(π x), by x, in powers of (x / 3)²."""
_MODULUS = {
    0: (0.797884561, -5.26506332e-09, -0.0055407382, -7.47184357e-07, 0.00101593826, 6.39680168e-05, -0.000920299614,
        0.000848197832, -0.000365808655, 6.52778837e-05),
    1: (0.797884561, 3.37903994e-09, 0.016622548, -5.8131371e-07, -0.00188950179, -0.000121702425, 0.00138822618,
        -0.00119618308, 0.0004925828, -8.50144826e-05),
}  # fmt: skip
"""√x √(J² + Y²) in powers of 3 / x."""
_PHASE = {
    0: (-0.0416666668, 2.16937137e-08, 0.00241062316, 6.99287416e-06, -0.000895382979, 4.46284789e-05, 0.00095702288,
        -0.00103173709, 0.000492307613, -9.45952443e-05),
    1: (0.125, -2.91430517e-08, -0.00607562001, -7.6475656e-06, 0.00155732458, -7.89064291e-06, -0.00147070304,
        0.00147826838, -0.0006759352, 0.000126121701),
}  # fmt: skip
"""The angle of (J, Y) without x - π/4 (of order 1, - 3π/4), by 3 / x, in powers of that."""
_SECOND_NEAR = {
    0: (-0.577215665, 0.422784334, 0.2306961, 0.034892061, 0.00261506225, 0.000118079954, 3.90044963e-06),
    1: (1.0, 0.15443133, -0.672784333, -0.181575181, -0.0191821341, -0.00111547806, -4.12831623e-05, -1.15629039e-06),
}
"""K₀ + log(x/2) I₀, and x (K₁ - log(x/2) I₁), in powers of (x / 2)²."""
_SECOND_FAR = {
    0: (1.25331414, -0.0783317603, 0.0220200631, -0.0113490353, 0.00801971889, -0.00602038737, 0.00372909975,
        -0.00150560312, 0.000280953948),
    1: (1.25331414, 0.23499596, -0.0367053848, 0.0159165257, -0.0103964027, 0.00751164457, -0.00456684979,
        0.00182634938, -0.000339009941),
}  # fmt: skip
"""√x exp(x) K in powers of 2 / x."""


def _near(order: int, size: Tensor) -> Tensor:
    """J of numbers from 0 to 3."""
    value = polynomial((size / _END) ** 2, _NEAR[order])
    return value * size if order else value


def _far(order: int, size: Tensor, second: bool) -> Tensor:
    """J, or Y, of numbers from 3; sine and cosine are those of the number itself, which loses nothing."""
    inverse = _END / size
    turn = polynomial(inverse, _PHASE[order]) * inverse - (2 * order + 1) * math.pi / 4
    length = polynomial(inverse, _MODULUS[order]) / torch.sqrt(size)
    sine, cosine = torch.sin(size), torch.cos(size)
    if second:
        return length * (sine * torch.cos(turn) + cosine * torch.sin(turn))
    return length * (cosine * torch.cos(turn) - sine * torch.sin(turn))


def _first(order: int) -> Callable[..., Any]:
    """J₀ or J₁."""

    def function(x: Tensor) -> Any:
        if x.dtype != torch.float32:
            return NotImplemented
        size = x.abs()
        value = torch.where(size < _END, _near(order, size.clamp(max=_END)), _far(order, size.clamp(min=_END), False))
        return torch.where(x < 0, -value, value) if order else value

    return function


def _second(order: int) -> Callable[..., Any]:
    """Y₀ or Y₁: minus infinity at 0, NaN below."""

    def function(x: Tensor) -> Any:
        if x.dtype != torch.float32:
            return NotImplemented
        low = x.clamp(0.0, _END)
        rest = polynomial((low / _END) ** 2, _REST[order])
        safe = torch.where(low > 0, low, 1.0)
        below = 2 / math.pi * torch.log(safe / 2) * _near(order, low)
        below = below + (rest * low - 2 / math.pi / safe if order else rest)
        value = torch.where(x < _END, below, _far(order, x.clamp(min=_END), True))
        return torch.where(x < 0, math.nan, torch.where(x == 0, -math.inf, value))

    return function


def _modified_second(order: int, scaled: bool) -> Callable[..., Any]:
    """K₀ or K₁; ``scaled`` by exp(x): infinite at 0, NaN below."""
    first = modified_bessel(order, scaled=False)

    def function(x: Tensor) -> Any:
        if x.dtype != torch.float32:
            return NotImplemented
        low, high = x.clamp(0.0, _MODIFIED_END), x.clamp(min=_MODIFIED_END)
        safe = torch.where(low > 0, low, 1.0)
        below = polynomial((low / _MODIFIED_END) ** 2, _SECOND_NEAR[order])
        turn = torch.log(safe / 2) * first(low)
        below = below / safe + turn if order else below - turn
        below = below * torch.exp(low) if scaled else below
        above = polynomial(_MODIFIED_END / high, _SECOND_FAR[order]) / torch.sqrt(high)
        above = above if scaled else above * torch.exp(-high)
        value = torch.where(x <= _MODIFIED_END, below, above)
        return torch.where(x < 0, math.nan, torch.where(x == 0, math.inf, value))

    return function


def spherical(x: Tensor) -> Any:
    """``prims::spherical_bessel_j0``: sin(x) / x."""
    if x.dtype != torch.float32:
        return NotImplemented
    value = torch.sin(x) / torch.where(x == 0, 1.0, x)
    return torch.where(x == 0, 1.0, torch.where(torch.isinf(x), 0.0, value))


BESSEL: Mapping[Any, Callable[..., Any]] = MappingProxyType(
    {
        _PRIMS.bessel_j0.default: _first(0),
        _PRIMS.bessel_j1.default: _first(1),
        _PRIMS.spherical_bessel_j0.default: spherical,
        _ATEN.special_bessel_j0.default: _first(0),
        _ATEN.special_bessel_j1.default: _first(1),
        _ATEN.special_spherical_bessel_j0.default: spherical,
        _ATEN.special_bessel_y0.default: _second(0),
        _ATEN.special_bessel_y1.default: _second(1),
        _ATEN.special_modified_bessel_k0.default: _modified_second(0, scaled=False),
        _ATEN.special_modified_bessel_k1.default: _modified_second(1, scaled=False),
        _ATEN.special_scaled_modified_bessel_k0.default: _modified_second(0, scaled=True),
        _ATEN.special_scaled_modified_bessel_k1.default: _modified_second(1, scaled=True),
    }
)
