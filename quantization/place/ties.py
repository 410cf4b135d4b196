"""Scales at which no result falls on or near a rounding tie, so that every integer kernel gives the same integers.

An integer kernel computes ``round(accumulator * ratio)``, where the accumulator is exact and the ratio is a quotient
of scales.  Kernels differ in how they hold the ratio (a float, a fixed-point multiplier of 21 or 31 bits, two floats
applied in turn), which shifts the product by 1e-4 of a step or so, and in how they round a tie (to even, up, away from
zero).  Where the ratio is ``p / q`` with a small odd ``q``, every product is at least ``1 / (2 q)`` of a step away from
the next tie, and none of that shows.  So the scales are moved to the nearest ones with such ratios:

* products and sums over a constant number of elements: ``(product of scales) / (count * result)`` is one fraction;
* sums of tensors: all scales are integer multiples of one unit, the result's an odd multiple.

What must not be moved (a scale that a kernel prescribes) is not; what cannot be reached nearby is left as it was.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from convertkit.artifact import Array

_SUM_LIMIT = 1023
"""Of odd multiples: XNNPACK's sums hold ratios in 21 bits, which is off by up to 2.4e-4 of a step (2 * 255 / 2**21)."""
_PRODUCT_LIMIT = 2047
_WEIGHT_LIMIT = 4095
"""Of denominators: one float32 ratio is off by up to 3.1e-5 of a step (255 * 2**-23), a sum of floats by some 1e-4."""
_LEAST_MULTIPLE = 255
_NUMERATORS = 512
_FAR = 0.03
"""No scale is moved by more than this share, whatever could be won."""
_STEPS_UP = 4096
"""Of float32, where 2**23 double a number."""
_SAME = 2.0**-22
"""Relative difference of quotients of float32 that were made to be equal."""
_CLOSE = 2.0**-12
"""A scale that is off by less than this, -72 dB, is as good as the wanted one."""


@dataclass(frozen=True, slots=True)
class Product:
    """``result = product of factors / count``: indices of scales.

    ``slope``: what negative numbers are multiplied with besides, where a kernel holds both factors in 256ths; zero
    where they become none.
    """

    factors: tuple[int, ...]
    result: int
    count: float = 1
    slope: float | None = None


@dataclass(frozen=True, slots=True)
class Sum:
    """``result = sum of terms``: indices of scales."""

    terms: tuple[int, ...]
    result: int


def tie_free_ratios(ratios: Array, limit: int = _WEIGHT_LIMIT) -> Array:
    """The nearest fractions with an odd denominator of at most ``limit``; of close ones that with the least.

    A ratio below ``1 / limit`` gets a larger odd denominator; one that has no such fraction nearby stays.
    """
    wanted = np.asarray(ratios, np.float64)
    best = np.maximum(np.rint(wanted), 1) / _odd(1 / wanted)
    error = np.abs(best / wanted - 1)
    for numerator in range(1, _NUMERATORS + 1):
        if not ((error > _CLOSE) & (numerator / wanted < limit)).any():
            break
        denominator = _odd(numerator / wanted)
        found = np.abs(numerator / denominator / wanted - 1)
        better = (denominator <= limit) & (found < error) & (error > _CLOSE)
        best, error = np.where(better, numerator / denominator, best), np.where(better, found, error)
    return np.asarray(np.where(error <= _FAR, best, wanted))


def sloped_ratio(ratio: float, slope: float) -> float:
    """Near ``ratio`` the number of 256ths whose product with ``slope`` is nearest to whole 256ths, too.

    Of several the one with fewer ties, then the nearest; ``ratio`` itself where no 256th is near.  Without a slope, 3
    above a multiple of 4 is without ties: 128 times it lies between an odd number and the even one above, to which both
    round to even and round half up go.
    Source: XNNPACK's leaky ReLU of bytes, which multiplies by ``round(256 ratio)`` and ``round(256 slope ratio)``, and
    its conversion from bytes to bytes.
    """
    steps = np.arange(np.ceil(256 * ratio * (1 - _FAR)), 256 * ratio * (1 + _FAR))
    if not steps.size or not steps[-1]:
        return ratio
    missed = np.abs(np.rint(slope * steps) - slope * steps).round(3)
    # Of a multiple of 4 every 64th product is a tie.
    ties = np.where(steps % 4, 0, 1) if slope else np.where(steps % 4 == 3, 0, 1)
    order = np.lexsort((np.abs(steps / (256 * ratio) - 1), ties, missed))
    return float(steps[order[0]] / 256)


def tie_free_weights(scales: Array, input_scale: float, output_scale: float) -> Array:
    """Weight scales, float32, at which ``input * weight / output`` is a fraction as above, for every channel."""
    step = float(output_scale) / float(input_scale)
    return (tie_free_ratios(scales.astype(np.float64) / step) * step).astype(np.float32)


def tie_free_term(scale: float, other: float, result: float) -> float:
    """The scale of a constant that is added to a tensor whose scales came from :func:`tie_free_scales`."""
    fraction = Fraction(other / result).limit_denominator(_SUM_LIMIT)
    if fraction.denominator % 2 == 0 or abs(float(fraction) * result / other - 1) > _SAME:
        return scale
    unit = result / (fraction.denominator * int(_odd(np.array(_SUM_LIMIT / fraction.denominator - 1))))
    return max(round(scale / unit), 1) * unit


def tie_free_scales(
    wanted: Sequence[float], fixed: Mapping[int, float], sums: Sequence[Sum], products: Sequence[Product]
) -> tuple[float, ...]:
    """``wanted``, moved to the nearest scales that meet ``sums`` and ``products``; ``fixed`` ones stay."""
    solver = _Solver(wanted, fixed, sums, products)
    for product in products:
        solver.meet(product)
    return solver.scales()


def invertible(scale: float) -> float:
    """A float32 at most 0.05 % larger, by which dividing is the same as multiplying by its float32 reciprocal.

    Kernels quantize what enters a graph in either way, which differs by a unit in the last place where the reciprocal
    is rounded: one in a million results is then on the other side of a tie.
    """
    first = np.float32(scale).view(np.int32)
    near = np.arange(first, first + _STEPS_UP, dtype=np.int32).view(np.float32)
    product = near.astype(np.float64) * (np.float32(1) / near).astype(np.float64)
    return float(near[int(np.abs(product - 1).argmin())])


def _odd(values: Array) -> Array:
    """The nearest odd integers, 1 at least."""
    return np.asarray(np.maximum(2 * np.floor(values / 2) + 1, 1))


class _Solver:
    """Scales in lattices (those that meet in sums); each lattice is decided once, the first time it is needed."""

    def __init__(
        self, wanted: Sequence[float], fixed: Mapping[int, float], sums: Sequence[Sum], products: Sequence[Product]
    ) -> None:
        self._wanted, self._fixed = tuple(map(float, wanted)), dict(fixed)
        self._odd = {each.result for each in sums}
        self._lattice = joined(len(self._wanted), sums)
        self._multiple = self._of_means(products)
        self._found: dict[int, float] = {}
        self._demands = [0] * len(self._wanted)
        for product in products:
            for index in {*product.factors, product.result}:
                self._demands[index] += 1

    def scales(self) -> tuple[float, ...]:
        for index in range(len(self._wanted)):
            self._decide(index)
        return tuple(self._found[index] for index in range(len(self._wanted)))

    def meet(self, product: Product) -> None:
        """Decide all lattices of a product; the freest of them so that the ratio is a good fraction."""
        involved = (*product.factors, product.result)
        free = [index for index in involved if self._is_free(index, involved)]
        chosen = min(free, key=self._weight, default=None)
        for index in involved:
            if index != chosen:
                self._decide(index)
        if chosen is None:
            return
        known = {index: self._found.get(index, self._wanted[index]) for index in involved}
        ratio = math.prod(known[index] for index in product.factors) / known[product.result] / product.count
        if product.slope is None:
            change = float(tie_free_ratios(np.array(ratio), _PRODUCT_LIMIT)) / ratio
        else:
            change = sloped_ratio(ratio, product.slope) / ratio
        self._decide(chosen, known[chosen] / change if chosen == product.result else known[chosen] * change)

    def _is_free(self, index: int, involved: Sequence[int]) -> bool:
        members = set(self._lattice[index])
        undecided = not members & self._found.keys() and not members & self._fixed.keys()
        return undecided and sum(other in members for other in involved) == 1

    def _weight(self, index: int) -> tuple[int, int]:
        """How much else depends on a scale."""
        members = self._lattice[index]
        return sum(self._demands[member] for member in members), len(members)

    def _decide(self, index: int, scale: float | None = None) -> None:
        """Decide a whole lattice, with ``scale`` for one member where it is given."""
        members = self._lattice[index]
        if index in self._found:
            return
        pinned = {member: self._fixed[member] for member in members if member in self._fixed}
        if scale is not None:
            pinned[index] = scale
        if len(members) == 1:
            self._found[index] = pinned.get(index, self._wanted[index])
            return
        self._found.update(self._multiples(members, pinned))

    def _of_means(self, products: Sequence[Product]) -> dict[int, int]:
        """What the steps of a scale are a multiple of whose mean meets it in a sum, as in ``x - mean(x)``.

        An even count in the denominator has ties, so the factor has its powers of two, and the mean is an odd multiple.
        """
        found: dict[int, int] = {}
        for each in products:
            factor, even = each.factors[0], int(each.count) & -int(each.count)
            inside = len(each.factors) == 1 and each.slope is None and each.result in self._lattice[factor]
            if inside and each.count == int(each.count) and even <= _SUM_LIMIT and each.result not in found:
                found[factor] = max(found.get(factor, 1), even)
                self._odd.add(each.result)
        return {index: even for index, even in found.items() if index not in self._odd}

    def _multiples(self, members: Sequence[int], pinned: Mapping[int, float]) -> dict[int, float]:
        """Multiples of one unit for all members, those of :meth:`_of_means` where scales near by have them."""
        powers = np.array([self._multiple.get(member, 1) for member in members])
        found = self._near(members, pinned, powers) if (powers > 1).any() else None
        return (
            found
            or self._near(members, pinned, np.ones_like(powers))
            or {**{member: self._wanted[member] for member in members}, **pinned}
        )

    def _near(self, members: Sequence[int], pinned: Mapping[int, float], powers: Array) -> dict[int, float] | None:
        """Of all units the one that moves the scales least; None where that is too far."""
        wanted = np.array([pinned.get(member, self._wanted[member]) for member in members])
        odd = np.array([member in self._odd for member in members])
        anchor = next((place for place, member in enumerate(members) if member in pinned), None)
        best, least = wanted, np.inf
        for top in range(_LEAST_MULTIPLE, _SUM_LIMIT + 1, 2):
            unit = float(wanted[odd].max()) / top
            steps = np.where(odd, _odd(wanted / unit), powers * np.maximum(np.rint(wanted / unit / powers), 1))
            if anchor is not None:
                unit = wanted[anchor] / steps[anchor]
            error = float(np.abs(steps * unit / wanted - 1).max())
            if error < least and steps[odd].max() <= _SUM_LIMIT:
                best, least = steps * unit, error
        return {**dict(zip(members, best.tolist(), strict=True)), **pinned} if least <= _FAR else None


def joined(count: int, sums: Iterable[Sum]) -> list[tuple[int, ...]]:
    """For every index those that share sums with it, itself included, ascending."""
    groups = [{index} for index in range(count)]
    for each in sums:
        group = set().union(*(groups[index] for index in (*each.terms, each.result)))
        for index in group:
            groups[index] = group
    return [tuple(sorted(group)) for group in groups]
