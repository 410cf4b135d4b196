"""The comparison's numbers, and whether it notices when it has no power."""

import numpy as np
import pytest

from convertkit.parity import DiffAccumulator, judge
from convertkit.stage import FLOAT32, LOSSY, Tolerance

RNG = np.random.default_rng(7)
VARIED = [RNG.standard_normal((2, 5)).astype(np.float32) for _ in range(4)]


def diff_of(references, outputs, lsb=None):
    accumulator = DiffAccumulator("y", lsb)
    for reference, output in zip(references, outputs, strict=True):
        accumulator.add(np.asarray(reference), np.asarray(output))
    return accumulator.finish()


def verdict(references, outputs, tolerance=FLOAT32, lsb=None):
    return judge("before", "after", (diff_of(references, outputs, lsb),), tolerance, len(references))


def test_numbers_of_a_known_difference():
    reference = [np.array([[1.0, -2.0, 4.0]]), np.array([[3.0, 0.5, -1.0]])]
    output = [np.array([[1.0, -2.5, 4.0]]), np.array([[3.0, 0.5, -1.0]])]
    diff = diff_of(reference, output, lsb=0.25)
    assert diff.max_abs == 0.5
    assert diff.relative == 0.125  # 0.5 / 4
    assert diff.max_rel == 0.25  # 0.5 / 2
    assert diff.lsb == 2.0
    assert diff.lsb_share == pytest.approx(5 / 6)
    assert (diff.worst_feed, diff.worst_index) == (0, (0, 1))
    assert diff.snr_db == pytest.approx(10 * np.log10(31.25 / 0.25))
    assert diff.power == "ok"


def test_equal_outputs_pass_with_infinite_snr():
    report = verdict(VARIED, VARIED)
    assert report.passed
    assert report.diffs[0].snr_db == np.inf


def test_swapped_channels_fail_although_every_value_is_there():
    assert not verdict(VARIED, [value[:, ::-1] for value in VARIED]).passed


@pytest.mark.parametrize(
    ("references", "reason"),
    [
        ([np.full((1, 9), 3.0)] * 3, "constant"),
        ([VARIED[0]] * 3, "the same for every feed"),
        ([np.zeros((1, 9)), np.full((1, 9), 1e-9)], "all but zero"),
        ([np.full((1, 9), np.nan)] * 2, "not finite"),
        ([np.eye(9)[:1], np.eye(9)[3:4]], "saturated"),
        ([np.zeros((0, 3))] * 2, "empty"),
    ],
)
def test_a_comparison_without_power_is_not_proven(references, reason):
    report = verdict(references, references)
    assert not report.passed
    assert reason in report.unproven


def test_two_logits_are_not_called_saturated():
    references = [np.array([[0.3, -1.2]]), np.array([[2.2, 0.9]]), np.array([[-0.4, 0.1]]), np.array([[1.0, 0.2]])]
    assert verdict(references, references).passed


def test_a_constant_output_may_stand_beside_a_live_one_only_if_equal():
    live = diff_of(VARIED, VARIED)
    anchors = [np.arange(4.0)] * 4
    assert judge("a", "b", (live, diff_of(anchors, anchors)), FLOAT32, 4).passed
    off = [np.arange(4.0) + 1e-6] * 4
    assert not judge("a", "b", (live, diff_of(anchors, off)), FLOAT32, 4).passed


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_nan_that_the_reference_lacks_fails(bad):
    outputs = [value.copy() for value in VARIED]
    outputs[1][0, 0] = bad
    assert "NaN or infinity" in verdict(VARIED, outputs).failures[0]


def test_infinities_in_the_same_places_are_equal():
    references = [value.copy() for value in VARIED]
    references[0][0, 0] = -np.inf
    assert verdict(references, references).passed


def test_another_shape_fails():
    assert "shape" in verdict(VARIED, [value.T for value in VARIED]).failures[0]


def test_integers_must_be_equal():
    references = [RNG.integers(0, 9, (3, 4)) for _ in range(3)]
    outputs = [value + (index == 2) for index, value in enumerate(references)]
    assert verdict(references, references).passed
    assert "integers must be equal" in verdict(references, outputs).failures[0]


def test_lsb_or_snr_is_enough_and_neither_is_not():
    tolerance = Tolerance("kernels round", lsb=1.0, snr_db=40.0)
    outputs = [value + 0.01 for value in VARIED]
    assert verdict(VARIED, outputs, tolerance, lsb=0.01).passed
    assert not verdict(VARIED, outputs, tolerance, lsb=0.004).passed
    assert verdict(VARIED, [value + 1e-3 for value in VARIED], tolerance, lsb=1e-4).passed


def test_low_snr_warns_and_lower_fails():
    noisy = [value + 0.3 * RNG.standard_normal(value.shape) for value in VARIED]
    report = verdict(VARIED, noisy, LOSSY)
    assert report.passed
    assert "dB" in report.warnings[0]
    assert not verdict(VARIED, [-value for value in VARIED], LOSSY).passed
