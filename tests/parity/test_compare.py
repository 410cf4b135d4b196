"""The comparison's numbers, and whether it notices when it has no power."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from convertkit.artifact import Artifact, TensorSpec
from convertkit.parity.compare import DiffAccumulator
from convertkit.parity.replay import compare_recordings
from convertkit.parity.values import Recording
from convertkit.stage import FLOAT32, LOSSY, Tolerance

RNG = np.random.default_rng(7)
VARIED = [RNG.standard_normal((2, 5)).astype(np.float32) for _ in range(4)]


def recording(values, lsb=None, edges=(), clamped=False):
    """A model's outputs by name, or those of its one output ``y``, for a feed each."""
    outputs = tuple(
        {name: np.asarray(each) for name, each in (value if isinstance(value, dict) else {"y": value}).items()}
        for value in values
    )
    specs = tuple(
        TensorSpec(name, each.shape, each.dtype.name, lsb=lsb, clamped=clamped) for name, each in outputs[0].items()
    )
    return Recording("it", Artifact(None, "onnx", (), specs, ""), ({},) * len(values), outputs, edges)


def verdict(references, outputs, tolerance=FLOAT32, lsb=None, edges=(), truth=None, clamped=False):
    both = (recording(each, lsb, edges, clamped) for each in (references, outputs))
    return compare_recordings(*both, tolerance, truth)


def truth_of(value, spread, placed=(), calmest=np.inf):
    """What a twin says of the output ``y``; more runs say the same."""
    more = {"thorough": lambda: truth_of(value, spread, placed, calmest), "calmest": {"y": calmest}}
    return SimpleNamespace(values={"y": value}, spread={"y": spread}, placed=placed, **more)


def diff_of(references, outputs, lsb=None):
    return verdict(references, outputs, LOSSY, lsb).diffs[0]


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
        ([VARIED[0]] * 3, "the same for every input"),
        ([1e-32 * value for value in VARIED], "all but zero"),
        ([np.zeros((1, 9)), np.full((1, 9), 1e-9)], "saturated"),
        ([np.full((1, 9), np.nan)] * 2, "not finite"),
        ([np.eye(9)[:1], np.eye(9)[3:4]], "saturated"),
        ([np.eye(9)[:1], np.eye(9)[:1] + 1e-4, np.eye(9)[:1]], "constant but for rounding"),
        ([np.eye(9)[:1], np.eye(9)[:1] + 1e-4, np.eye(9)[3:4]], "saturated"),
        ([np.eye(9)[:1], np.eye(9)[:1] + 1e-4, np.eye(9)[:2] + 1e-4], "constant but for rounding"),
        ([np.eye(9)[:1], np.eye(9)[3:5]], "saturated"),
        ([np.zeros((0, 3))] * 2, "empty"),
    ],
)
def test_a_comparison_without_power_is_not_proven(references, reason):
    report = verdict(references, references)
    assert not report.passed
    assert reason in report.unproven


def test_small_outputs_prove_something_where_they_agree_to_their_own_tolerance():
    """A deep network of random weights; what is left of a difference of equals would not agree."""
    small = [1e-11 * value for value in VARIED]
    assert verdict(small, [value * (1 + 1e-7) for value in small]).passed
    loose = verdict(small, [value * (1 + 1e-7) for value in small], Tolerance("single steps", snr_db=20.0))
    assert "all but zero" in loose.unproven, "so much agreement roundings might leave, too"
    off = verdict(small, [value * (1 + 1e-3 * RNG.standard_normal(value.shape)) for value in small])
    assert not off.passed
    assert "all but zero" in off.unproven, "what the twin may explain does not prove it either"


def test_two_logits_are_not_called_saturated():
    references = [np.array([[0.3, -1.2]]), np.array([[2.2, 0.9]]), np.array([[-0.4, 0.1]]), np.array([[1.0, 0.2]])]
    assert verdict(references, references).passed


def test_a_constant_output_may_stand_beside_a_live_one_only_if_equal():
    both = [{"live": value, "anchors": np.arange(4.0)} for value in VARIED]
    off = [{**value, "anchors": value["anchors"] + 1e-6} for value in both]
    assert verdict(both, both).passed
    report = verdict(both, off)
    assert not report.failures
    assert not report.passed


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_nan_that_the_reference_lacks_fails(bad):
    outputs = [value.copy() for value in VARIED]
    outputs[1][0, 0] = bad
    assert "is NaN or infinite where the reference is finite" in verdict(VARIED, outputs).failures[0]


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


QUIET = [*VARIED, VARIED[0] * np.float32(1e-6)]


def test_an_edge_input_counts_against_its_own_scale_and_leaves_the_headline_alone():
    outputs = [*VARIED, QUIET[-1] * np.float32(1.01)]
    report = verdict(QUIET, outputs, edges=("1e-6 of the scale",))
    assert report.diffs[0].relative == 0
    assert report.edges == ("1e-6 of the scale",)
    (failure,) = report.failures
    assert 'relative 1.00e-02 on input "1e-6 of the scale", allowed 1e-05' in failure


def test_a_lossy_step_may_lose_infinities_of_edge_inputs_and_make_none():
    silent = np.full_like(VARIED[0], -np.inf)
    low = np.full_like(VARIED[0], -8)
    assert verdict([*VARIED, silent], [*VARIED, low], LOSSY, edges=("zeros",)).passed
    assert not verdict([*VARIED, silent], [*VARIED, low], edges=("zeros",)).passed
    assert not verdict([*VARIED, low], [*VARIED, silent], LOSSY, edges=("zeros",)).passed


def test_noise_on_an_edge_input_is_held_against_the_usual_signal():
    kernels = Tolerance("kernels round", lsb=1.0, snr_db=20.0)
    small, gross = (QUIET[-1] + np.float32(shift) for shift in (0.01, 0.5))
    assert verdict(QUIET, [*VARIED, small], kernels, edges=("quiet",)).passed
    assert "at least 20 dB" in verdict(QUIET, [*VARIED, gross], kernels, edges=("quiet",)).failures[0]


def test_edge_inputs_tell_where_the_usual_ones_do_not():
    saturated = [np.eye(9)[:1], np.eye(9)[3:4]]
    assert not verdict(saturated, saturated).passed
    varied = np.linspace(0, 1, 9)[None]
    assert verdict([*saturated, varied], [*saturated, varied], edges=("constant",)).passed


@pytest.mark.parametrize("kept", [True, False])
def test_edge_inputs_tell_of_a_lossy_step_what_it_keeps_of_them(kept):
    saturated = [np.eye(9)[:1], np.eye(9)[3:4]]
    varied = np.linspace(0, 1, 9)[None]
    after = [*saturated, varied + 0.01 if kept else varied[:, ::-1]]
    report = verdict([*saturated, varied], after, replace(LOSSY, snr_db=20), edges=("between",))
    assert report.passed == kept


def test_the_first_fault_is_reported_and_none_behind_it_that_may_be_explained():
    off = [VARIED[0], VARIED[1] + 1e-3, VARIED[2] + 1]

    def truth(feed):
        return truth_of(VARIED[1].astype(np.float64), np.zeros((2, 5)))

    (failure,) = verdict(VARIED[:3], off, truth=truth).failures
    assert "on input 2" in failure


def test_a_limit_that_is_left_by_one_unit_in_the_last_place_is_a_fault_unless_roundings_decide_it():
    clamped = [np.minimum(value * 2, 1).astype(np.float32).repeat(4, 1) for value in VARIED]
    off = [np.where(value == 1, np.nextafter(np.float32(1), np.float32(0)), value) for value in clamped]

    def told(moved):
        place = iter(range(9))

        def truth(feed):
            value = clamped[next(place)].astype(np.float64)
            return truth_of(value, np.full(value.shape, moved))

        return truth

    assert verdict(clamped, clamped, truth=told(0.0), clamped=True).passed
    assert not verdict(clamped, off, truth=told(0.0), clamped=True).passed
    assert verdict(clamped, off, truth=told(1e-7), clamped=True).passed
    assert verdict(clamped, off, truth=told(0.0)).passed


def test_an_output_that_no_input_reaches_is_verified_by_being_equal():
    sizes = [np.array([2, 3])] * 3
    before, after = recording(sizes), recording(sizes)
    assert not compare_recordings(before, after, FLOAT32).passed
    (spec,) = before.artifact.outputs
    told = replace(before, artifact=replace(before.artifact, outputs=(replace(spec, fixed=True),)))
    assert compare_recordings(told, after, FLOAT32).passed
    assert not compare_recordings(after, told, FLOAT32).passed
    assert not compare_recordings(told, recording([np.array([2, 4])] * 3), FLOAT32).passed


def test_choices_are_not_called_saturated():
    chosen = [np.eye(9)[:1], np.eye(9)[3:4]]
    before, after = recording(chosen), recording(chosen)
    assert not compare_recordings(before, after, FLOAT32).passed
    (spec,) = after.artifact.outputs
    told = replace(after, artifact=replace(after.artifact, outputs=(replace(spec, discrete=True),)))
    assert compare_recordings(before, told, FLOAT32).passed


@pytest.mark.parametrize(("spread", "passes"), [(1.0, True), (0.0, False)])
def test_integers_that_differ_are_right_where_roundings_decide_them(spread, passes):
    values = [RNG.integers(0, 9, (3, 4)) for _ in range(3)]
    other = [values[0] + 1, *values[1:]]
    truth = truth_of(values[0], np.full((3, 4), spread))
    assert verdict(values, other, truth=lambda feed: truth).passed is passes


def test_a_large_integer_is_not_excused_by_a_tolerance_of_floats():
    values = [10**7 + RNG.integers(0, 9, (3, 4)) for _ in range(3)]
    other = [values[0] + 1, *values[1:]]
    truth = truth_of(values[0], np.zeros((3, 4)))
    for clamped in (False, True):
        assert not verdict(values, other, truth=lambda feed: truth, clamped=clamped).passed
        assert not verdict(values, other, truth=lambda feed: None, clamped=clamped).passed


def test_choices_are_the_same_or_others_not_near_or_far() -> None:
    """Half of them others is 3 dB, whichever classes they are."""
    found = []
    for shift in (1, 500):
        choices = DiffAccumulator("y", choices=True)
        expected = np.arange(8)
        choices.add(expected, np.where(expected % 2, expected, expected + shift))
        found.append(choices.finish().snr_db)
    assert found[0] == found[1] == pytest.approx(3.01, abs=0.01)


def test_what_is_picked_best_first_may_be_others_by_half() -> None:
    """Of classes that hardly score the order is rounding's; a choice of one is held to the step's own bound."""
    tolerance = Tolerance("integers again", snr_db=15.0)
    for ranked in (True, False):
        spec = TensorSpec("y", (1, 10), "int64", ranked=ranked, classes=10)
        sides = []
        for others in (0, 2):
            artifact = Artifact(Path("m.onnx"), "onnx", (), (spec,), "")
            rows = [np.roll(np.arange(10), place)[None] for place in range(3)]
            outputs = tuple({"y": np.where(np.arange(10) < others, 99, row)} for row in rows)
            sides.append(Recording("m", artifact, ({},) * 3, outputs))
        assert compare_recordings(*sides, tolerance).passed == ranked


def test_the_place_of_a_largest_element_may_be_another_one() -> None:
    """The source has the twin's own place by luck; behind other operators that tells of one that does not round."""
    places = [each.astype(np.float32) for each in VARIED]
    moved = [each.copy() for each in places]
    moved[2][0, 0] += 1.0
    spread = np.where(moved[2] != places[2], 2.0, 1e-7)
    for placed in (("y",), ()):
        told = truth_of(places[2].astype(np.float64), spread, placed)
        assert verdict(places, moved, truth=lambda feed, told=told: told).passed == bool(placed)
    moved[2][0, 1] += 1.0  # which no rounding moves
    told = truth_of(places[2].astype(np.float64), spread, ("y",))
    assert not verdict(places, moved, truth=lambda feed: told).passed


def test_a_single_integer_that_few_runs_missed_is_asked_for_thoroughly():
    """The twin's few runs show nothing, more of them show the integer that rounds the other way; other faults stay."""
    same = Tolerance("the same integers", lsb=3.0, snr_db=20.0, same_integers=True)
    moved = [np.array(each) for each in VARIED]
    moved[2][1, 3] += 0.01
    none = {"y": np.zeros_like(moved[2], np.float64)}
    seen = {"y": np.where(moved[2] != VARIED[2], 0.01, 0.0)}
    calmest = {"y": 0.0}
    many = SimpleNamespace(values={"y": VARIED[2].astype(np.float64)}, spread=seen, placed=(), calmest=calmest)
    few = SimpleNamespace(values=many.values, spread=none, placed=(), calmest=calmest, thorough=lambda: many)
    assert verdict(VARIED, moved, same, truth=lambda feed: few).passed
    moved[2][0, 0] += 0.9
    assert not verdict(VARIED, moved, same, truth=lambda feed: few).passed


@pytest.mark.parametrize("calmest", [0.0, 0.06])
def test_a_tie_that_few_roundings_turn_may_be_turned(calmest):
    """One value at a tie moves most of the output: explained if some run leaves it, as the source does, else not."""
    same = Tolerance("the same integers", lsb=3.0, snr_db=20.0, same_integers=True)
    moved = [np.array(each) for each in VARIED]
    moved[2] = moved[2] + np.float32(0.06)
    told = truth_of(VARIED[2].astype(np.float64), np.full(moved[2].shape, 0.06), calmest=calmest)
    assert verdict(VARIED, moved, same, lsb=0.01, truth=lambda feed: told).passed == (calmest == 0.0)


def test_other_integers_are_told_by_what_they_were_held_to():
    """By steps and how many differ: the bound in dB, which they may well keep, did not decide."""
    same = Tolerance("the same integers", lsb=3.0, snr_db=20.0, same_integers=True)
    moved = [np.array(each) for each in VARIED]
    moved[2][1, 3] += 0.05
    still = truth_of(VARIED[2].astype(np.float64), np.zeros_like(moved[2], np.float64))
    (said,) = verdict(VARIED, moved, same, lsb=0.01, truth=lambda feed: still).failures
    assert said.startswith('output "y" max_abs 0.05, 5.0 LSB, on input 3; ')
    assert "of its elements are other integers; allowed 1 LSB in 1% of them" in said
    assert "dB" not in said
    (said,) = verdict(VARIED, moved, same, truth=lambda feed: still).failures  # floats that are computed from integers
    assert said.endswith(" on input 3; allowed what float64 tells that roundings move (the same integers)")


def scores_behind_boxes(error=0.0):
    """Four coordinates of up to 640 and three scores of up to 1 for forty candidates, the scores off by a part."""
    rng = np.random.default_rng(11)
    boxes, scores = rng.uniform(0, 640, (3, 2, 4, 40)), rng.uniform(0, 1, (3, 2, 3, 40))
    return list(np.concatenate([boxes, scores * (1 + error)], 2).astype(np.float32))


@pytest.mark.parametrize(("spread", "passes"), [(1e-7, False), (1e-3, True)])
def test_small_values_do_not_hide_behind_large_ones_of_the_same_output(spread, passes):
    """5e-3 of a score is 1e-5 of 640."""
    reference, off = scores_behind_boxes(), scores_behind_boxes(5e-3)

    def truth(feed):
        return truth_of(reference[0].astype(np.float64), np.full(reference[0].shape, spread))

    alone = (reference[:1], off[:1])
    assert verdict(*alone).passed  # nobody tells more
    report = verdict(*alone, truth=truth)
    assert report.passed is passes
    assert passes or "axis 1" in report.failures[0]
    assert verdict(reference, scores_behind_boxes(5e-4), truth=truth).passed


@pytest.mark.parametrize(("part", "passes"), [(0.0, True), (5e-3, False)])
def test_nor_where_roundings_explain_the_large_ones(part, passes):
    """The coordinates are further off than the tolerance, as their spread tells; scores have none."""
    reference = scores_behind_boxes()
    off = [scores_behind_boxes(part)[0], *reference[1:]]
    spread = np.zeros(reference[0].shape)
    spread[:, :4] = 0.05
    off[0][:, :4] += np.random.default_rng(2).uniform(-0.04, 0.04, (2, 4, 40)).astype(np.float32)
    true = reference[0] + np.where(spread > 0, 0.01, 0.0)
    assert verdict(reference, off, truth=lambda feed: truth_of(true, spread)).passed is passes


def test_a_fault_does_not_hide_behind_worse_slices_that_roundings_explain():
    """Nine slices of which roundings leave nothing, and one that is wrong by 3 of a thousand."""
    rng = np.random.default_rng(5)
    parts = [np.full((1, 40), 640.0), rng.uniform(0.5, 1, (1, 40)), rng.uniform(0.5e-6, 1e-6, (9, 40))]
    reference = np.concatenate(parts).astype(np.float32)
    spread = np.concatenate([np.full((2, 40), 1e-7), np.full((9, 40), 1e-6)])
    true = reference + np.where(spread > 1e-6 / 2, rng.uniform(-5e-7, 5e-7, reference.shape), 0)
    noisy = reference.copy()
    noisy[2:] += np.float32(5e-7)
    wrong = noisy.copy()
    wrong[1] *= np.float32(1.003)

    def truth(feed):
        return truth_of(true, spread)

    others = list(VARIED[1:])
    assert verdict([reference, *others], [noisy, *others], truth=truth).passed
    assert not verdict([reference, *others], [wrong, *others], truth=truth).passed


@pytest.mark.parametrize(("largest", "error", "passes"), [(1, 6e-8, True), (1, 3e-7, False), (1e-3, 3e-9, False)])
def test_slices_that_hold_less_than_the_last_digit_of_one_are_not_judged_alone(largest, error, passes):
    """A class that nothing shows has scores of 1e-9, and ONNX Runtime's Sigmoid says 0."""
    reference = [np.random.default_rng(4).uniform(0, largest, (2, 3, 40)).astype(np.float32)]
    reference[0][:, 1] = 1e-9
    off = [reference[0].copy()]
    off[0][:, 1] += np.float32(error)
    truth = truth_of(reference[0].astype(np.float64), np.zeros((2, 3, 40)))
    assert verdict(reference, off, truth=lambda feed: truth).passed is passes


def test_slices_of_few_elements_are_not_judged_alone():
    reference = [np.array([[1e-6, 5.0, -3.0], [2e-6, 1.0, 0.5]], np.float32), VARIED[0][:, :3]]
    off = [reference[0] + np.float32([[1e-6, 0, 0], [0, 0, 0]]), reference[1]]
    assert verdict(
        reference, off, truth=lambda feed: truth_of(reference[0].astype(np.float64), np.zeros((2, 3)))
    ).passed
