"""Rows under ties: what other orders deliver is allowed, everything else is not."""

from types import SimpleNamespace

import numpy as np
import pytest

from convertkit.parity.candidates import choose_among_ties
from convertkit.stage import FLOAT32

RNG = np.random.default_rng(11)
SCORES = np.array([0.9, 0.7, 0.7, 0.7, 0.7, 0.2])
"""Of six candidates the best three are delivered: 0, and two of 1 to 4.  0 is there always, 5 never."""
BOXES, CLASSES = RNG.random((6, 4)), np.array([3, 1, 2, 1, 2, 3])
ORDERS = [(0, 1, 2), (0, 2, 1), (0, 3, 4), (0, 4, 1)]


def delivered(*candidates, names=("boxes", "scores", "classes"), dtype=np.float64):
    chosen = list(candidates)
    every = {"boxes": BOXES[chosen][None], "scores": SCORES[chosen][None], "classes": CLASSES[chosen][None]}
    return {name: every[name].astype(dtype) if name != "classes" else every[name] for name in names}


def ties(orders=ORDERS, names=("boxes", "scores", "classes")):
    runs = [delivered(*order, names=names) for order in orders]
    chosen = [np.isin(np.arange(6), order) for order in orders]
    spread = {name: np.zeros(value.shape) for name, value in runs[0].items()}
    return SimpleNamespace(runs=runs, chosen=chosen, spread=spread, prefer=lambda candidates: (runs[0], chosen[0]))


def allows(*results, known=None, names=("boxes", "scores", "classes")):
    return choose_among_ties(results, frozenset(names), known or ties(names=names), FLOAT32.relative)


SINGLE = delivered(0, 3, 2, dtype=np.float32)


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (0, 4, 3), (0, 3, 1)])
def test_other_candidates_that_tie_are_allowed(order):
    assert allows(delivered(*order, dtype=np.float32))


@pytest.mark.parametrize(
    "result",
    [
        delivered(0, 1, 5, dtype=np.float32),
        delivered(0, 1, 1, dtype=np.float32),
        delivered(0, 3, 3, dtype=np.float32),
        delivered(1, 2, 3, dtype=np.float32),
        delivered(1, 0, 2, dtype=np.float32),
        SINGLE | {"boxes": SINGLE["boxes"] * np.float32(1.001)},
        SINGLE | {"boxes": SINGLE["boxes"][:, ::-1]},
        SINGLE | {"classes": SINGLE["classes"][:, ::-1]},
        SINGLE | {"scores": SINGLE["scores"] + np.float32(1e-4)},
        SINGLE | {"boxes": SINGLE["boxes"] * np.nan},
        delivered(0, 1, dtype=np.float32),
    ],
    ids=[
        "a worse candidate", "one twice", "another twice", "the best left out", "the best not first", "other boxes",
        "boxes of others", "classes of others", "other scores", "not finite", "one too few",
    ],
)  # fmt: skip
def test_what_no_order_delivers_is_not(result):
    assert not allows(result)
    assert not allows(delivered(0, 1, 2), result)


def test_rows_without_scores_change_places_only_where_orders_differ():
    names = ("boxes", "classes")
    assert allows(delivered(0, 4, 2, names=names), names=names)
    assert not allows(delivered(1, 0, 2, names=names), names=names)


def test_nothing_is_allowed_where_orders_do_not_differ():
    alone = ties(orders=[(0, 1, 2)], names=("boxes",))
    assert allows(delivered(0, 1, 2, names=("boxes",)), known=alone, names=("boxes",))
    assert not allows(delivered(0, 2, 1, names=("boxes",)), known=alone, names=("boxes",))


def test_a_row_that_only_others_make_possible_is_asked_for():
    """Candidate 4 is delivered only where 3 is preferred to all of the others."""
    known = ties(orders=[(0, 1, 2), (0, 2, 1), (0, 3, 1), (0, 3, 2)])
    asked = []

    def prefer(candidates):
        asked.append(candidates)
        order = (0, 3, 4) if candidates[3] and not candidates[[1, 2]].any() else (0, 1, 2)
        return delivered(*order), np.isin(np.arange(6), order)

    known.prefer = prefer
    assert allows(delivered(0, 3, 4), known=known)
    assert asked
    assert not allows(delivered(0, 3, 5), known=known)


def test_counts_follow_the_rows():
    """``count`` is one number for each image and no row of boxes."""
    known = ties()
    for run in known.runs:
        run["count"] = np.array([3])
    known.spread["count"] = np.zeros(1)
    names = ("boxes", "scores", "classes", "count")
    assert allows(delivered(0, 3, 1) | {"count": np.array([3])}, known=known, names=names)
    assert not allows(delivered(0, 3, 1) | {"count": np.array([2])}, known=known, names=names)
