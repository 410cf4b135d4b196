"""Sizes that an exported program takes: a ``Dim`` of torch.export has a least and a largest one (in a fork)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from convertkit.converters.pytorch.describe.batch import SECOND
from convertkit.converters.pytorch.describe.bounds import takes
from convertkit.converters.pytorch.describe.prober import Prober
from convertkit.converters.pytorch.model.leaves import Leaf
from convertkit.converters.pytorch.model.programs import program_bounds


def said_sizes(prober: Prober, names: Sequence[str]) -> Iterator[dict[str, int]]:
    """Sizes that the program says of all ``names``: those of its example, and the least."""
    bounds = program_bounds(prober.subject)
    if names and bounds.keys() >= set(names):
        for place in (2, 0):
            yield {name: bounds[name][place] for name in names}


def within_bounds(
    prober: Prober, leaves: Sequence[Leaf], base: Mapping[str, int], further: Sequence[dict[str, int]]
) -> tuple[dict[str, int], ...]:
    """``further`` sizes, with smaller ones in the place of those beyond the largest; ``base`` where these fail."""
    bounds = program_bounds(prober.subject)
    found = []
    for sizes in further:
        fitting = {
            name: _fitting(size, base[name], *bounds[name][:2]) if name in bounds else size
            for name, size in sizes.items()
        }
        found.append(fitting if fitting == sizes or takes(prober, leaves, fitting) else dict(base))
    return tuple(found)


def _fitting(size: int, base: int, low: int, high: int) -> int:
    smaller = base // 2 if base > SECOND else high
    return next((each for each in (size, smaller) if low <= each <= high), base)
