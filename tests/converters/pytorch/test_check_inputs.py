"""The inputs that judge routes: varied, and other ones than the proof's."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from convertkit.artifact import Array
from convertkit.converters.pytorch.model.check_inputs import check_feed, check_feeds
from convertkit.converters.pytorch.model.leaves import Leaf
from convertkit.parity.feeds import proof_feeds
from convertkit.stage import Feed


def test_feeds_of_a_check_have_both_signs_all_magnitudes_and_every_size() -> None:
    sizes = ({"N": 1}, {"N": 2}, {"N": 5})
    feeds = check_feeds([Leaf("x", "x", ("N", 3), "float32")], sizes, seed=0)
    assert [feed["x"].shape[0] for feed in feeds] == [1, 1, 1, 1, 2, 5]
    lows, highs = ([float(find(feed["x"])) for feed in feeds] for find in (np.min, np.max))
    assert min(highs) < 0, "values of a distribution that has positive ones alone, with the other sign"
    assert min(map(abs, lows)) < 0.01
    assert max(map(abs, lows)) > 4
    alone = check_feed([Leaf("x", "x", (5, 3), "float32")], {}, seed=0, turn=5)
    np.testing.assert_array_equal(alone["x"], feeds[5]["x"], "what a run has computed is not computed again")


@pytest.mark.parametrize("seed", [0, 7])
def test_routes_are_chosen_on_other_feeds_than_they_are_proven_on(seed: int) -> None:
    leaf = Leaf("x", "x", (3, 4), "float32")
    chosen, proven = check_feeds([leaf], ({},), seed), proof_feeds([leaf.spec()], None, seed)

    def patterns(feeds: Sequence[Feed]) -> list[Array]:
        return [each["x"] / np.abs(each["x"]).max() for each in feeds]

    pairs = itertools.product(patterns(chosen), patterns(proven))
    assert not any(np.allclose(np.abs(one), np.abs(other)) for one, other in pairs)
