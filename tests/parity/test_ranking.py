"""Ranked rows may change places where their scores tie within the tolerance, and nowhere else."""

from dataclasses import replace

import numpy as np
import pytest

from convertkit.artifact import Artifact, TensorSpec
from convertkit.parity.ranking import in_place
from convertkit.parity.replay import compare_recordings
from convertkit.parity.values import Recording
from convertkit.stage import FLOAT32, LOSSY

SCORES = np.array([[0.9, 0.7, 0.7 - 1e-7, 0.4], [0.8, 0.8 - 2e-7, 0.8 - 4e-7, 0.1]], np.float32)
RNG = np.random.default_rng(4)
WANTED = {"boxes": RNG.random((2, 4, 4), np.float32), "scores": SCORES, "classes": RNG.integers(0, 9, (2, 4))}
RANKED = frozenset(WANTED)


def swapped(names=RANKED, lane=0, order=(0, 2, 1, 3), wanted=WANTED):
    found = {name: value.copy() for name, value in wanted.items()}
    for name in names:
        found[name][lane] = found[name][lane][list(order)]
    found["scores"] = np.sort(found["scores"], -1)[:, ::-1]  # the best come first in any runtime
    return found


def is_restored(found, ranked=RANKED, wanted=WANTED):
    placed, _ = in_place(wanted, found, ranked, 1e-5)
    return all(np.allclose(placed[name], wanted[name], rtol=0, atol=1e-6) for name in wanted)


@pytest.mark.parametrize(("lane", "order", "moved"), [(0, (0, 2, 1, 3), 2), (1, (2, 0, 1, 3), 3), (1, (1, 0, 2, 3), 2)])
def test_tied_rows_go_back_in_all_outputs(lane, order, moved):
    found = swapped(lane=lane, order=order)
    assert is_restored(found)
    assert in_place(WANTED, found, RANKED, 1e-5)[1] == moved


def test_scores_may_be_a_column_of_the_rows():
    wanted = {"rows": np.concatenate([WANTED["boxes"], SCORES[..., None]], -1)}
    found = {"rows": wanted["rows"].copy()}
    found["rows"][0, 1:3, :4] = wanted["rows"][0, 2:0:-1, :4]
    assert is_restored(found, {"rows"}, wanted)


@pytest.mark.parametrize(
    "found",
    [
        swapped(order=(1, 0, 2, 3)),
        swapped(names={"boxes", "scores"}),
        swapped(names={"classes"}),
        swapped() | {"boxes": swapped()["boxes"] * np.float32(1.001)},
        swapped() | {"scores": SCORES[:, ::-1]},
    ],
    ids=["no tie", "classes stay", "boxes stay", "other boxes", "worst first"],
)
def test_other_departures_stay(found):
    assert not is_restored(found)


def test_outputs_that_nothing_ranks_stay():
    assert not is_restored(swapped(), frozenset())


def test_equal_scores_rank_nothing():
    wanted = WANTED | {"scores": np.ones_like(SCORES)}
    assert not is_restored(swapped(wanted=wanted), wanted=wanted)


def recording(*feeds):
    specs = tuple(TensorSpec(name, value.shape, value.dtype.name, ranked=True) for name, value in WANTED.items())
    return Recording("it", Artifact(None, "onnx", (), specs, ""), ({},) * len(feeds), feeds)


OTHER = {name: np.flip(value, 0) for name, value in WANTED.items()}


def test_the_comparison_says_what_it_moved():
    report = compare_recordings(recording(WANTED, OTHER), recording(swapped(), OTHER), FLOAT32)
    assert report.passed
    assert report.warnings == (
        "2 rows of outputs that are ranked stand in another order; their scores tie within the tolerance",
    )


def test_a_lossy_step_is_compared_as_it_is():
    report = compare_recordings(recording(WANTED), recording(swapped()), replace(LOSSY, relative=1e-5))
    assert report.failures
