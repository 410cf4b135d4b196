"""Feeds that choose a road: varied, and other ones than the parity proof runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from convertkit.converters.pytorch.leaves import Leaf
from convertkit.parity.feeds import generated_feed
from convertkit.stage import Feed

_CHECK_SEED = 0x7C5
"""Mixed into the seed of the feeds that choose a road: the parity proof uses other ones."""
_FACTORS = (1.0, -1.0, 1.0, 0.05, 4.0, -4.0)
"""Signs and magnitudes that take a model through its branches."""
_AT_FURTHER_SIZES = 2


def check_feeds(leaves: Sequence[Leaf], sizes: Sequence[Mapping[str, int]], seed: int) -> Iterator[Feed]:
    """Varied feeds at the first size, a few at each further one; state is left to the replay."""
    rng = np.random.default_rng([_CHECK_SEED, seed])
    specs = [leaf.spec() for leaf in leaves if leaf.parameter]
    scaled = {leaf.name for leaf in leaves if leaf.dtype.startswith("float") and leaf.value_range is None}
    for place, size in enumerate(sizes):
        for kind, factor in enumerate(_FACTORS if place == 0 else _FACTORS[:_AT_FURTHER_SIZES]):
            feed = generated_feed(specs, size, rng, kind)
            yield {
                name: (value * factor).astype(value.dtype) if name in scaled else value for name, value in feed.items()
            }
