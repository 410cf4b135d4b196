"""Axes that change places, in steps that the layer Permute has: of at most four axes, or blocks of neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise, permutations

from convertkit.targets.ncnn.tensor import MOST_DIMENSIONS

Order = tuple[int, ...]
_MOST_STEPS, _MOST_AXES = 3, 8
"""Beyond these the search takes seconds."""


def blocks(order: Order) -> tuple[Order, ...]:
    """The axes of the operand that stay neighbours, in the order of the result."""
    cuts = [0, *(place for place, (one, other) in enumerate(pairwise(order), 1) if other != one + 1), len(order)]
    return tuple(order[start:stop] for start, stop in pairwise(cuts))


def steps(order: Order) -> tuple[Order, ...]:
    """As few orders as it takes, one after the other, that come to ``order``; empty where three do not."""
    for most in range(1, _MOST_STEPS + 1 if len(order) <= _MOST_AXES else 1):
        found = _steps(order, most)
        if found:
            return found
    return ()


def _steps(order: Order, most: int) -> tuple[Order, ...]:
    if len(blocks(order)) <= MOST_DIMENSIONS:
        return (order,)
    if most > 1:
        for first in _orders(len(order)):
            rest = _steps(tuple(first.index(axis) for axis in order), most - 1)
            if rest:
                return first, *rest
    return ()


def _orders(count: int) -> Iterator[Order]:
    """What one Permute makes of so many axes, without orders that move fewer than four blocks."""
    for cuts in combinations(range(1, count), MOST_DIMENSIONS - 1):
        parts = [tuple(range(*ends)) for ends in pairwise((0, *cuts, count))]
        for moved in permutations(parts):
            yield tuple(axis for part in moved for axis in part)
