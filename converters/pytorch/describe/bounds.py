"""How large generated integers may be where an example is all that tells it (in a fork of the worker).

One array may hold ids of several tables, a column for each: its example then goes as far as the largest of them, and
numbers drawn up to there end the model at the smallest.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from convertkit.converters.pytorch.describe.prober import Prober
from convertkit.converters.pytorch.model.leaves import Leaf, counted
from convertkit.errors import SourceError
from convertkit.parity.edge_inputs import UNTOLD


def exemplary(leaves: Sequence[Leaf], *, told: bool = False) -> tuple[Leaf, ...]:
    """Arrays of integers whose range is that of an example; ``told`` those, too, whose range the user gave."""
    return tuple(
        leaf
        for leaf in leaves
        if leaf.value_range is not None
        and leaf.dtype in ("int32", "int64")
        and not (leaf.scalar or leaf.rising)
        and (told or not leaf.told)
    )


def at_lowest(leaves: Sequence[Leaf], chosen: Sequence[Leaf]) -> tuple[Leaf, ...]:
    """The leaves, ``chosen`` ones with their smallest number alone."""
    return _with(leaves, {leaf.name: (_range(leaf)[0], _range(leaf)[0] + 1) for leaf in chosen})


def takes_highest(prober: Prober, leaves: Sequence[Leaf], sizes: Mapping[str, int]) -> bool:
    """Whether the model takes the largest number that is drawn for it, everywhere in the array."""
    chosen = (*exemplary(leaves), *(_drawn(leaf) for leaf in counted(leaves)))
    highest = {leaf.name: (_range(leaf)[1] - 1, _range(leaf)[1]) for leaf in chosen}
    return not highest or takes(prober, _with(leaves, highest), sizes)


def counted_as_drawn(
    prober: Prober, narrow: tuple[Leaf, ...], leaf: Leaf, sizes: Mapping[str, int]
) -> tuple[Leaf, ...]:
    """``narrow`` with ``leaf``, of which nobody told the range, as far as the model takes what is drawn for it."""
    wider = widened(prober, narrow, (_drawn(leaf),), sizes)
    whole = any(each.name == leaf.name and each.value_range == _drawn(leaf).value_range for each in wider)
    return tuple(leaf if each.name == leaf.name and whole else each for each in wider)


def _drawn(leaf: Leaf) -> Leaf:
    return dataclasses.replace(leaf, value_range=(0.0, float(UNTOLD)))


def widened(
    prober: Prober, narrow: tuple[Leaf, ...], chosen: Sequence[Leaf], sizes: Mapping[str, int]
) -> tuple[Leaf, ...]:
    """``narrow`` with the ranges of ``chosen``, each as far as the model takes all numbers of it in every place."""
    for leaf in chosen:
        low, high = (int(bound) for bound in _range(leaf))
        known, failing = low, high
        while failing - known > 1:
            tried = (known + failing) // 2 if failing < high or known > low else high - 1  # first as it came
            if takes(prober, _with(narrow, {leaf.name: (tried, tried + 1)}), sizes):
                known = tried
            else:
                failing = tried
        narrow = _with(narrow, {leaf.name: (low, known + 1)})
    return narrow


def shortened(found: Sequence[Leaf], leaves: Sequence[Leaf]) -> list[Leaf]:
    """Those arrays of ``found`` that have a smaller range than in ``leaves``."""
    before = {leaf.name: leaf.value_range for leaf in leaves}
    return [leaf for leaf in found if not leaf.scalar and leaf.value_range != before[leaf.name]]


def _range(leaf: Leaf) -> tuple[float, float]:
    assert leaf.value_range is not None
    return leaf.value_range


def _with(leaves: Sequence[Leaf], ranges: Mapping[str, tuple[float, float]]) -> tuple[Leaf, ...]:
    return tuple(
        dataclasses.replace(leaf, value_range=ranges[leaf.name]) if leaf.name in ranges else leaf for leaf in leaves
    )


def takes(prober: Prober, leaves: Sequence[Leaf], sizes: Mapping[str, int]) -> bool:
    """Whether the model computes for numbers of these ranges."""
    try:
        prober.run(leaves, sizes, 0)
    except SourceError:
        return False
    return True
