"""Sizes that are known only at run time, as polynomials of the model's dynamic dimensions: ``2·N·T + 1``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

Term = tuple[str, ...]
"""The names that are multiplied, sorted; empty for the constant."""


@dataclass(frozen=True, slots=True)
class Size:
    """A sum of products of dynamic dimensions, each of which is zero or more; equal sizes compare equal."""

    terms: tuple[tuple[Term, int], ...]

    @staticmethod
    def of(value: int | str) -> Size:
        """A number, or a dynamic dimension by its name."""
        return _sum([((), value)] if isinstance(value, int) else [((value,), 1)])

    @property
    def number(self) -> int | None:
        """The value where it is known now."""
        if not self.terms:
            return 0
        return self.terms[0][1] if len(self.terms) == 1 and not self.terms[0][0] else None

    @property
    def is_never_negative(self) -> bool:
        """Whether no assignment of sizes makes it negative."""
        return all(factor >= 0 for _, factor in self.terms)

    def __str__(self) -> str:
        """Its name: a dynamic dimension's own, else the sum written out."""
        parts = ["*".join([*([str(factor)] if factor != 1 or not term else []), *term]) for term, factor in self.terms]
        return " + ".join(parts) or "0"

    def __add__(self, other: Size) -> Size:
        return _sum([*self.terms, *other.terms])

    def __neg__(self) -> Size:
        return Size(tuple((term, -factor) for term, factor in self.terms))

    def __sub__(self, other: Size) -> Size:
        return self + -other

    def __mul__(self, other: Size) -> Size:
        return _sum((tuple(sorted((*left, *right))), a * b) for left, a in self.terms for right, b in other.terms)

    def over(self, other: Size) -> Size | None:
        """The quotient where ``other`` is one product that divides every term of this without a rest."""
        if len(other.terms) != 1:
            return None
        ((divisor, number),) = other.terms
        quotients = []
        for term, factor in self.terms:
            left = list(term)
            for name in divisor:
                if name not in left:
                    return None
                left.remove(name)
            if factor % number:
                return None
            quotients.append((tuple(left), factor // number))
        return _sum(quotients)


def product(sizes: Iterable[Size]) -> Size:
    """All multiplied."""
    result = Size.of(1)
    for size in sizes:
        result = result * size
    return result


def _sum(terms: Iterable[tuple[Term, int]]) -> Size:
    total: dict[Term, int] = {}
    for term, factor in terms:
        total[term] = total.get(term, 0) + factor
    return Size(tuple(sorted((term, factor) for term, factor in total.items() if factor)))


def equal(left: Size, right: Size) -> bool | None:
    """Whether two sizes are the same at run time, None where that depends."""
    difference = left - right
    if difference.number is not None:
        return difference.number == 0
    constant = dict(difference.terms).get((), 0)
    one_sign = difference.is_never_negative or (-difference).is_never_negative
    return False if one_sign and constant else None


def larger(left: Size, right: Size) -> Size | None:
    """The larger of two sizes, None where it depends."""
    if (left - right).is_never_negative:
        return left
    return right if (right - left).is_never_negative else None


def compared(left: Size, right: Size) -> bool | None:
    """Whether ``left`` is less than ``right`` whatever the dynamic sizes are, None where that depends."""
    difference = right - left
    if (-difference).is_never_negative:
        return False
    return True if difference.is_never_negative and dict(difference.terms).get((), 0) > 0 else None
