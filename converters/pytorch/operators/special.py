"""Special functions that torch's ONNX exporter lacks, in elementary ones that keep their digits in float32."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

_ATEN = torch.ops.aten
_EULER = 0.57721566490153286061
_SMALL, _STEPS = 8.0, 6
"""From where Stirling's series is good to 1e-13, and how many steps of 1 lead from there to the series about 2."""
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
"""B(2k) / (2k (2k - 1)): Abramowitz and Stegun 6.1.40."""
_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
"""B(2k) / 2k: Abramowitz and Stegun 6.3.18."""
_TERMS = 24
_TAIL = 5.0
_DEEP, _FRACTIONS = 2.0, 24
"""From where the continued fraction is taken, and its terms, which are good to 1e-8 there."""
_INVERSE_INSIDE = (
    1.50140941, 0.246640727, -0.00417768164, -0.00125372503, 0.00021858087, -4.39150654e-06, -3.5233877e-06,
    3.43273939e-07, 2.81022636e-08,
)  # fmt: skip
"""erf⁻¹(y) / y in powers of ``w - 2.5``, where w = -log(1 - y²) < 5.
Source: M. Giles, *Approximating the erfinv function*, GPU Computing Gems Jade (2011), single precision."""
_INVERSE_TAIL = (
    2.83297682, 1.00167406, 0.00943887047, -0.0076224613, 0.00573950773, -0.00367342844, 0.00134934322,
    0.000100950558, -0.000200214257,
)  # fmt: skip
"""The same in powers of ``sqrt(w) - 3``, for other w."""

_FAR = 1e-6
_QUANTILE, _QUANTILE_DIVISOR = (2.515517, 0.802853, 0.010328), (1.432788, 0.189269, 0.001308)
_BESSEL_END = 3.75
_BESSEL = {
    0: (
        (1.0, 3.5156229, 3.0899424, 1.2067492, 0.2659732, 0.0360768, 0.0045813),
        (0.39894228, 0.01328592, 0.00225319, -0.00157565, 0.00916281, -0.02057706, 0.02635537, -0.01647633, 0.00392377),
    ),
    1: (
        (0.5, 0.87890594, 0.51498869, 0.15084934, 0.02658733, 0.00301532, 0.00032411),
        (0.39894228, -0.03988024, -0.00362018, 0.00163801, -0.01031555, 0.02282967, -0.02895312, 0.01787654,
         -0.00420059),
    ),
}  # fmt: skip
"""Powers of (x / 3.75)² below 3.75, and of 3.75 / x above, of the functions of either order."""


def _zeta_less_one(s: int) -> float:
    """ζ(s) - 1 by Euler and Maclaurin after ten terms."""
    head = sum(float(n) ** -s for n in range(2, 10))
    tail: float = 10.0 ** (1 - s) / (s - 1) + 0.5 * 10.0**-s + s / 12 * 10.0 ** (-s - 1)
    third = s * (s + 1) * (s + 2)
    return head + tail - third / 720 * 10.0 ** (-s - 3) + third * (s + 3) * (s + 4) / 30240 * 10.0 ** (-s - 5)


_ABOUT_TWO = (1 - _EULER, *((-1) ** k * _zeta_less_one(k) / k for k in range(2, _TERMS)))
"""log Γ(2 + d) = Σ c(k) dᵏ for |d| < 2, from k = 1: Abramowitz and Stegun 6.1.33."""


def polynomial(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """From the lowest power."""
    result = torch.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        result = result * x + coefficient
    return result


def _log_gamma(x: Tensor) -> Tensor:
    """Of x ≥ 0.5."""
    near, factor = x.clamp(0.5, _SMALL), torch.ones_like(x)
    for _ in range(_STEPS):  # Γ(x) = (x - 1) Γ(x - 1)
        high = near > 2.5
        near = torch.where(high, near - 1, near)
        factor = torch.where(high, factor * near, factor)
    low = near < 1.5
    factor = torch.where(low, factor / near, factor)
    away = torch.where(low, near - 1, near - 2)
    small = torch.log(factor) + away * polynomial(away, _ABOUT_TWO)
    great = x.clamp(min=_SMALL)
    inverse = 1 / great
    series = inverse * polynomial(inverse * inverse, _STIRLING)
    large = (great - 0.5) * (torch.log(great) - 1) + (math.log(2 * math.pi) / 2 - 0.5) + series
    return torch.where(x < _SMALL, small, large)


def _turned(x: Tensor) -> Tensor:
    """sin(π x) for the distance of x to the nearest integer, which loses nothing."""
    return torch.sin(math.pi * (x - torch.round(x)))


def log_gamma(x: Tensor) -> Any:
    """``aten::lgamma``: log |Γ(x)|; infinite at 0, -1, -2, …"""
    if not x.is_floating_point():
        return NotImplemented
    low = x < 0.5
    above = _log_gamma(torch.where(low, 1 - x, x))
    sine = _turned(x).abs()
    below = math.log(math.pi) - torch.log(sine) - above
    return torch.where(low, below, above)


def digamma(x: Tensor) -> Any:
    """``aten::digamma``: the derivative of log Γ(x); NaN at negative integers, infinite at 0 against its sign."""
    if not x.is_floating_point():
        return NotImplemented
    low = x < 0.5
    above = torch.where(low, 1 - x, x)
    steps = torch.zeros_like(x)
    for _ in range(int(_SMALL)):
        small = above < _SMALL
        steps = torch.where(small, steps + 1 / above, steps)
        above = torch.where(small, above + 1, above)
    inverse = 1 / above
    square = inverse * inverse
    value = torch.log(above) - 0.5 * inverse - square * polynomial(square, _DIGAMMA) - steps
    off = torch.where(x == 0, x, x - torch.round(x))
    pole = torch.where((off == 0) & (x != 0), math.nan, math.pi / torch.tan(math.pi * off))
    return torch.where(low, value - pole, value)


def log_normal_cdf(x: Tensor) -> Any:
    """``aten::special_log_ndtr``: below -2 by the continued fraction of Mills' ratio, which does not vanish.

    Source: Abramowitz and Stegun 26.2.14.
    """
    if not x.is_floating_point():
        return NotImplemented
    depth = (-x).clamp(min=_DEEP)
    ratio = _mills(depth)
    tail = -0.5 * depth * depth - 0.5 * math.log(2 * math.pi) - torch.log(ratio)
    near = x.clamp(min=-_DEEP)
    return torch.where(x < -_DEEP, tail, torch.log1p(-0.5 * torch.erfc(near / math.sqrt(2))))


def error_function_inverse(y: Tensor) -> Any:
    """``aten::erfinv``: Giles' polynomials, good to float32; behind them Newton's steps of third order for float64.

    In float32 a step would be worse than the estimate: near the ends ``erf(x) - y`` has lost its digits.
    """
    if not y.is_floating_point():
        return NotImplemented
    inside = y.clamp(-1, 1)
    room = -torch.log((1 - inside) * (1 + inside)).clamp(min=-80.0)
    central = polynomial(room - 2.5, _INVERSE_INSIDE)
    tail = polynomial(torch.sqrt(room.clamp(min=_TAIL)) - 3, _INVERSE_TAIL)
    x = torch.where(room < _TAIL, central, tail) * inside
    for _ in range(2 if y.dtype == torch.float64 else 0):  # Halley
        step = (torch.erf(x) - inside) * (math.sqrt(math.pi) / 2) * torch.exp(x * x)
        x = x - step / (1 + x * step)
    x = torch.where(y.abs() == 1, y * math.inf, x)
    return torch.where(y.abs() > 1, math.nan, x)


def normal_quantile(p: Tensor) -> Any:
    """``aten::special_ndtri``: Giles' polynomial, in the far tail a Newton step on the distribution's logarithm.

    Source of the tail's estimate: Abramowitz and Stegun 26.2.23, good to 4.5e-4, which the step squares.
    """
    if p.dtype != torch.float32:
        return NotImplemented
    inside = p.clamp(0, 1)
    least = torch.minimum(inside, 1 - inside).clamp(min=torch.finfo(p.dtype).tiny)
    room = -torch.log(4 * least * (1 - least))
    central = polynomial(room - 2.5, _INVERSE_INSIDE)
    tail = polynomial(torch.sqrt(room.clamp(min=_TAIL)) - 3, _INVERSE_TAIL)
    near = math.sqrt(2) * torch.where(room < _TAIL, central, tail) * (2 * least - 1)
    t = torch.sqrt(-2 * torch.log(least))
    far = polynomial(t, _QUANTILE) / polynomial(t, (1.0, *_QUANTILE_DIVISOR)) - t
    depth = (-far).clamp(min=_DEEP)
    ratio = _mills(depth)  # the density over the distribution
    missing = -0.5 * depth * depth - 0.5 * math.log(2 * math.pi) - torch.log(ratio) - torch.log(least)
    far = -depth - missing / ratio
    x = torch.where(least < _FAR, far, near)
    x = torch.where(inside > 0.5, -x, x)
    x = torch.where(p == 0, -math.inf, torch.where(p == 1, math.inf, x))
    return torch.where((p < 0) | (p > 1) | p.isnan(), math.nan, x)


def _mills(depth: Tensor) -> Tensor:
    """The normal density over what lies beyond, for ``depth`` of at least 2: Abramowitz and Stegun 26.2.14."""
    ratio = depth
    for step in range(_FRACTIONS, 0, -1):
        ratio = depth + step / ratio
    return ratio


def modified_bessel(order: int, scaled: bool) -> Callable[..., Any]:
    """I₀ or I₁; ``scaled`` by exp(-|x|).  Abramowitz and Stegun 9.8.1 to 9.8.4, good to 3e-7."""
    small, large = _BESSEL[order]

    def function(x: Tensor) -> Any:
        if x.dtype != torch.float32:
            return NotImplemented
        size = x.abs()
        low, high = size.clamp(max=_BESSEL_END), size.clamp(min=_BESSEL_END)
        below = polynomial((low / _BESSEL_END) ** 2, small) * (low if order else 1.0)
        below = below * torch.exp(-low) if scaled else below
        above = polynomial(_BESSEL_END / high, large) / torch.sqrt(high)
        above = above if scaled else above * torch.exp(high)
        value = torch.where(size < _BESSEL_END, below, above)
        return torch.where(x < 0, -value, value) if order else value

    return function


SPECIAL: Mapping[Any, Callable[..., Any]] = MappingProxyType(
    {
        _ATEN.lgamma.default: log_gamma,
        _ATEN.digamma.default: digamma,
        _ATEN.erfinv.default: error_function_inverse,
        _ATEN.special_ndtri.default: normal_quantile,
        _ATEN.i0.default: modified_bessel(0, scaled=False),
        _ATEN.special_i0e.default: modified_bessel(0, scaled=True),
        _ATEN.special_i1.default: modified_bessel(1, scaled=False),
        _ATEN.special_i1e.default: modified_bessel(1, scaled=True),
        _ATEN.special_modified_bessel_i0.default: modified_bessel(0, scaled=False),
        _ATEN.special_modified_bessel_i1.default: modified_bessel(1, scaled=False),
    }
)
