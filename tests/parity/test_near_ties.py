"""Edge inputs on which the roundings of an engine of its own decide, and faults that hide behind nothing of it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from convertkit.artifact import Artifact, TensorSpec
from convertkit.parity.bar import below_the_bar
from convertkit.parity.near_ties import own_roundings
from convertkit.parity.replay import compare_recordings
from convertkit.parity.values import Departure, Recording
from convertkit.stage import Tolerance

NPU = Tolerance("kernels of its own", snr_db=20.0, near_ties=0.06)
BLIND = Tolerance("kernels of its own", snr_db=20.0)
RNG = np.random.default_rng(4)
USUAL = [RNG.normal(size=(1, 24)) for _ in range(3)]
EDGE = RNG.normal(size=(1, 24))


def recorded(edge, usual=USUAL):
    values = [*usual, edge]
    artifact = Artifact(None, "onnx", (), (TensorSpec("y", (1, 24), "float64"),), "")
    return Recording("it", artifact, ({},) * len(values), tuple({"y": each} for each in values), ("constant",))


def twin(moved, value=EDGE):
    """A twin on whose twelve runs the edge input's outputs are ``moved`` about in root mean square."""

    def runs(near_ties):
        assert near_ties == NPU.near_ties
        rng = np.random.default_rng(7)
        return tuple({"y": value + moved * rng.normal(size=value.shape)} for _ in range(12))

    return lambda feed: SimpleNamespace(values={"y": value}, spread={}, near_ties=runs)


def judged(off, moved, tolerance=NPU, usual=USUAL, value=EDGE):
    found = EDGE + off if np.ndim(off) else EDGE + off * np.random.default_rng(9).normal(size=EDGE.shape)
    return compare_recordings(recorded(EDGE), recorded(found, usual), tolerance, twin(moved, value))


def test_what_an_engines_roundings_do_is_no_fault():
    report = judged(0.4, 0.4)
    assert report.passed
    assert "roundings within 0.06 of a step from ties" in report.explained[0]
    assert not judged(0.4, 0.4, BLIND).passed


@pytest.mark.parametrize("moved", [0.0, 0.02, 0.15], ids=["nothing", "less", "a third"])
def test_more_than_they_do_is_a_fault(moved):
    report = judged(0.4, moved)
    assert not report.passed
    assert 'on input "constant"' in report.failures[0]


def test_one_element_does_not_hide_among_the_others():
    off = 0.2 * np.random.default_rng(9).normal(size=EDGE.shape)
    assert judged(off, 0.4).passed
    off[0, 3] = 2.6
    assert not judged(off, 0.4).passed


def test_all_elements_together_are_about_as_far_as_runs_are():
    """None of them is further than its share, and all are as far as the furthest."""
    assert judged(np.full(EDGE.shape, 0.5), 0.4).passed
    assert not judged(np.full(EDGE.shape, 1.3), 0.4).passed


def test_a_twin_of_another_model_explains_nothing():
    assert not judged(0.4, 0.4, value=EDGE + 1.0).passed


def test_a_twin_that_is_further_off_than_its_runs_explains_nothing():
    """What the artifact gives is the twin's own value, and the model in integers is not."""
    assert not judged(np.full(EDGE.shape, 0.5), 0.1, value=EDGE + 0.5).passed


def test_an_element_may_be_a_step_further():
    truth = twin(0.4)(None)
    changes = np.max([np.abs(run["y"] - EDGE) for run in truth.near_ties(NPU.near_ties)], axis=0)
    off = np.zeros(EDGE.shape)
    off[0, 3] = 3 * max(changes[0, 3], np.quantile(changes, 0.75)) + 0.3
    diffs = [SimpleNamespace(step=each, mismatch=None) for each in (0.0, 0.4)]
    told = [
        own_roundings(Departure("y", 3, "constant", each, True), EDGE, EDGE + off, NPU.near_ties, truth)
        for each in diffs
    ]
    assert [bool(each) for each in told] == [False, True]


def test_usual_inputs_keep_the_bound():
    usual = [each + 0.4 * np.random.default_rng(1).normal(size=each.shape) for each in USUAL]
    assert not judged(0.4, 0.4, usual=usual).passed


def test_without_a_twin_the_bound_stays():
    recordings = recorded(EDGE), recorded(EDGE + 0.4)
    assert not compare_recordings(*recordings, NPU, lambda feed: None).passed


def test_no_step_may_round_beyond_a_neighbour():
    assert not below_the_bar(NPU)
    assert "0.6 of a step" in below_the_bar(Tolerance("so", snr_db=20.0, near_ties=0.6))
