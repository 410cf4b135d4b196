"""What the float64 twin explains, and what it does not: planted faults stay faults."""

from types import SimpleNamespace

import numpy as np
import pytest

from convertkit.parity.truth import explanation, is_ill_conditioned, leaves_a_limit
from convertkit.stage import FLOAT32

RNG = np.random.default_rng(3)
VALUE = RNG.standard_normal(400)
SPREAD = 1e-4 * (0.5 + RNG.random(400))


def explained(reference, got, value=VALUE, spread=SPREAD, **given):
    return explanation(np.asarray(reference), np.asarray(got), value, spread, FLOAT32.relative, **given)


def off(times, sign=1):
    return (VALUE + sign * times * SPREAD).astype(np.float32)


def test_an_artifact_as_far_from_the_truth_as_the_source_is_right():
    told = explained(off(2), off(2, -1))
    assert "the source is" in told
    assert "float64 tells" in told


def test_an_artifact_nearer_to_the_truth_than_the_source_is_right():
    assert explained(off(8), VALUE.astype(np.float32))


def test_a_fault_beyond_what_roundings_move_is_none_of_theirs():
    assert not explained(off(1), off(40))


def test_one_element_off_is_a_fault():
    got = off(1)
    got[17] += 0.01
    assert not explained(off(1), got)


def test_a_fault_of_many_elements_that_no_single_one_shows_is_found():
    """Each is within what roundings may do; that all are as far is not."""
    assert not explained(off(0.1), off(12))


def test_a_twin_of_another_model_explains_nothing():
    assert not explained(off(40), off(40))


def test_a_spread_excuses_nothing_where_the_source_is_much_nearer_to_the_truth():
    """Equal elements normalised: the source gives 0, roundings could make 1 of it, and the artifact does."""
    source, wrong = VALUE.astype(np.float32), off(1)
    spread = np.full(VALUE.size, 0.5)
    assert not explained(source, source + np.float32(0.2), spread=spread)
    assert explained(off(40), source + np.float32(0.02), spread=spread)
    assert explained(source, source + np.float32(0.01), spread=spread)
    assert explained(source, wrong, spread=spread)


def test_the_scale_of_usual_outputs_counts_where_this_one_is_silent():
    zeros = np.zeros(64)
    far, spread = np.full(64, 0.01, np.float32), np.full(64, 0.1)
    assert not explained(zeros, far, zeros, spread)
    assert not explained(zeros, far, zeros, spread, usual=0.1)
    assert explained(zeros, far, zeros, spread, usual=1.0)


def test_another_candidate_is_off_by_a_row_however_near_the_source_is():
    source, spread = VALUE.astype(np.float32), np.full(VALUE.size, 0.5)
    far = source + np.float32(0.4)
    assert not explained(source, far, spread=spread)
    assert explained(source, far, spread=spread, picked=True)
    assert not explained(source, source + np.float32(40), spread=spread, picked=True)


def test_few_elements_may_be_near_by_luck():
    value, spread = np.zeros(2), np.full(2, 0.1)
    near, far = np.full(2, 1e-3), np.full(2, 0.09)
    assert explained(near, far, value, spread)
    assert not explained(np.tile(near, 8), np.tile(far, 8), np.tile(value, 8), np.tile(spread, 8))
    assert not explained(near / 100, far, value, spread)


def test_each_call_of_a_state_may_add_its_roundings():
    far = (VALUE + 30 * SPREAD * RNG.choice([-1, 1], 400) * (np.arange(400) == 5)).astype(np.float32)
    assert not explained(off(1), far)
    assert explained(off(1), far, calls=3)


@pytest.mark.parametrize("undefined", ["source", "truth", "both"])
def test_a_number_where_the_source_gives_nan_is_never_excused(undefined):
    """Also not where the model is not defined: whoever meets NaN in the source is to meet it in the artifact."""
    nowhere = np.arange(VALUE.size) == 3
    reference = np.where(nowhere & (undefined != "truth"), np.nan, off(1))
    value = np.where(nowhere & (undefined != "source"), np.nan, VALUE)
    got = off(2, -1)
    got[3] = 50.0
    assert not explained(reference, got, value)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_finite_in_the_source_is_never_excused(bad):
    got = off(0)
    got[3] = bad
    spread = SPREAD.copy()
    spread[3] = np.inf
    assert not explained(off(0), got, spread=spread)


def test_a_source_that_overflows_is_judged_by_the_truth_alone():
    reference = off(1)
    reference[3] = np.inf
    assert explained(reference, off(1))
    wrong = off(1)
    wrong[3] += 1
    assert not explained(reference, wrong)


def test_integers_differ_only_where_roundings_decide_them():
    value = np.arange(5)
    got = np.array([0, 1, 2, 4, 3])
    assert explained(value, got, value, np.array([0.0, 0, 0, 1, 1]))
    assert not explained(value, got, value, np.array([0.0, 0, 0, 0, 1]))
    assert explained(value, got + np.array([0, 0, 0, 90, 0]), value, np.array([0.0, 0, 0, np.inf, 1]))


def test_an_integer_is_no_further_off_than_roundings_move_it():
    value, spread = np.arange(5), np.array([0.0, 0, 0, 1, 1])
    assert not explained(value, np.array([0, 1, 2, 3, -40]), value, spread)
    assert explained(value > 3, np.array([False, False, False, True, True]), value > 3, spread)


def test_an_integer_that_roundings_do_not_decide_is_that_of_the_source():
    """A twin of a wrong export gives what the artifact gives; large integers next to each other are one float64."""
    value, none = np.arange(5), np.zeros(5)
    assert not explained(np.array([0, 1, 2, 3, 40]), value, value, none)
    assert not explained(np.array([0, 1, 2, 3, 40]), value, value, np.array([0.0, 0, 0, 0, 1]))
    large = 2**60 + value
    assert not explained(large, large + (value > 3), large, none)
    assert not explained(value > 3, value > 2, value > 2, none)


def test_ill_conditioned_is_what_roundings_alone_move():
    def truth(spread):
        return SimpleNamespace(values={"y": VALUE}, spread={"y": np.full(400, spread)})

    assert is_ill_conditioned(truth(1e-3), 1e-5)
    assert not is_ill_conditioned(truth(1e-7), 1e-5)


def test_where_no_rounding_moves_a_value_it_has_to_be_equal():
    clamped, spread = np.minimum(VALUE, 1.0), np.where(VALUE > 1, 0, SPREAD)
    source = clamped.astype(np.float32)
    below = np.where(source == 1, np.nextafter(np.float32(1), np.float32(0)), source)
    assert leaves_a_limit(source, below, clamped, spread)
    assert not leaves_a_limit(source, source, clamped, spread)
    assert not leaves_a_limit(source, below, clamped, SPREAD)


def relu_of_noise() -> tuple[np.ndarray, np.ndarray]:
    """What a Relu makes of 100,000 values, and how far roundings move each; those behind the limit not at all."""
    value = np.maximum(np.random.default_rng(0).standard_normal(100_000), 0).astype(np.float32)
    return value, np.where(value > 0, 1e-5, 0.0)


def test_one_of_many_elements_may_cross_a_limit_close_by():
    """It lay within the noise of the limit, which a few noisy runs need not show."""
    reference, spread = relu_of_noise()
    crossed = reference.copy()
    crossed[np.flatnonzero(reference == 0)[7]] = 3e-5
    assert not leaves_a_limit(reference, crossed, reference.astype(np.float64), spread)


@pytest.mark.parametrize(("count", "by"), [(60, 3e-5), (1, 1e-2), (40_000, 1e-7)])
def test_many_or_far_elements_may_not(count, by):
    reference, spread = relu_of_noise()
    moved = reference.copy()
    moved[np.flatnonzero(reference == 0)[:count]] = by
    assert leaves_a_limit(reference, moved, reference.astype(np.float64), spread)
