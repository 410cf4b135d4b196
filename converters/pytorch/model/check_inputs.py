"""Feeds that choose a route: varied, and other ones than the parity proof runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from convertkit.artifact import Array
from convertkit.converters.pytorch.model.leaves import Leaf
from convertkit.parity.feeds import generated_feed
from convertkit.stage import Feed

_CHECK_SEED = 0x7C5
"""Mixed into the seed of the feeds that choose a route: the parity proof uses other ones."""
_FACTORS = (1.0, -1.0, 0.05, 4.0, -4.0, 1.0)
"""Signs and magnitudes that take a model through its branches."""


def check_feeds(leaves: Sequence[Leaf], sizes: Sequence[Mapping[str, int]], seed: int) -> tuple[Feed, ...]:
    """Varied feeds, one of them at each further size and the others at the first; state is left to the replay."""
    return tuple(check_feed(leaves, size, seed, turn) for turn, size in turns(sizes))


def turns(sizes: Sequence[Mapping[str, int]]) -> tuple[tuple[int, Mapping[str, int]], ...]:
    """The turn and the size of every feed."""
    before_further = len(_FACTORS) - len(sizes)
    return tuple((turn, sizes[max(0, turn - before_further)]) for turn in range(len(_FACTORS)))


def check_feed(leaves: Sequence[Leaf], size: Mapping[str, int], seed: int, turn: int) -> Feed:
    """The feed of one turn; it depends on no other turn."""
    rng = np.random.default_rng([_CHECK_SEED, seed, turn])
    specs = [leaf.spec() for leaf in leaves if leaf.parameter]
    scaled = {leaf.name for leaf in leaves if leaf.dtype.startswith("float") and leaf.value_range is None}
    feed = generated_feed(specs, size, rng, turn)
    factor = _FACTORS[turn]
    return {name: (value * factor).astype(value.dtype) if name in scaled else value for name, value in feed.items()}


def hiding_feeds(leaves: Sequence[Leaf], sizes: Sequence[Mapping[str, int]], seed: int) -> tuple[Feed, ...]:
    """Feeds in which a mask hides all of its first row, whichever value hides; none where no input may be a mask.

    Attention without a key left is zeros in one operator and NaN in another.  They judge a route only where the model
    computes finite numbers.  Integers of which nobody said how far they go may be masks, and ids whose 0 is padding.
    Models with state have none: what they compute from NaN is theirs for all calls to come.
    """
    masks = {leaf.name for leaf in leaves if _may_mask(leaf)}
    if not masks or not all(leaf.parameter for leaf in leaves):
        return ()
    feed = check_feed(leaves, sizes[0], seed, 0)
    return tuple(
        {name: _first_row_at(value, flag) if name in masks else value for name, value in feed.items()}
        for flag in (0, 1)
    )


def _may_mask(leaf: Leaf) -> bool:
    if leaf.scalar or leaf.rising or not leaf.shape:
        return False
    unknown = leaf.dtype in ("int32", "int64") and leaf.value_range is None
    return leaf.dtype == "bool" or unknown or ("int" in leaf.dtype and leaf.value_range == (0.0, 2.0))


def _first_row_at(value: Array, flag: int) -> Array:
    changed = value.copy()
    changed[:1] = flag
    return changed
