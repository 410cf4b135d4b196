"""Sizes that an exported program takes: a ``Dim`` of torch.export may have a largest one (in a fork)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from convertkit.converters.pytorch.describe.batch import SECOND
from convertkit.converters.pytorch.describe.bounds import takes
from convertkit.converters.pytorch.describe.prober import Prober
from convertkit.converters.pytorch.model.leaves import Leaf
from convertkit.converters.pytorch.model.programs import program_sizes


def exported_sizes(prober: Prober, names: Sequence[str]) -> list[dict[str, int]]:
    """Sizes of ``names`` in the example that the program was exported with; none where it does not know them all."""
    known = program_sizes(prober.subject)
    return [{name: known[name].example for name in names}] if names and known.keys() >= set(names) else []


def within_bounds(
    prober: Prober, leaves: Sequence[Leaf], base: Mapping[str, int], further: Sequence[dict[str, int]]
) -> tuple[dict[str, int], ...]:
    """``further`` sizes, with smaller ones in the place of those beyond the largest; ``base`` where these fail."""
    known = program_sizes(prober.subject)
    found = []
    for sizes in further:
        fitting = {
            name: _fitting(size, base[name], known[name].largest) if name in known else size
            for name, size in sizes.items()
        }
        found.append(fitting if fitting == sizes or takes(prober, leaves, fitting) else dict(base))
    return tuple(found)


def _fitting(size: int, base: int, largest: int) -> int:
    if size <= largest:
        return size
    return base // 2 if base > SECOND else largest
