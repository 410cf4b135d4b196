"""Scales at which no result is near a rounding tie: what the search promises, on its own."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convertkit.quantization.place.ties import (
    Product,
    Sum,
    invertible,
    sloped_ratio,
    tie_free_ratios,
    tie_free_scales,
    tie_free_term,
    tie_free_weights,
)

scales = st.floats(1e-3, 1.0)


def fraction(ratio: float, limit: int = 8191) -> Fraction:
    """The fraction that a ratio of float32 stands for; fails where it is none."""
    found = Fraction(ratio).limit_denominator(limit)
    assert abs(float(found) / ratio - 1) < 2e-7
    return found


@given(st.floats(1 / 4095, 2.0))
def test_ratios_are_close_and_their_denominators_odd(ratio: float) -> None:
    moved = float(tie_free_ratios(np.array(ratio)))
    assert fraction(moved).denominator % 2 == 1
    assert fraction(moved).denominator <= 4095
    assert moved == pytest.approx(ratio, rel=max(1 / 1024, ratio / 256))


@given(st.floats(0.5, 3.0))
def test_a_clamp_rounds_every_byte_alike_in_256ths(ratio: float) -> None:
    moved = sloped_ratio(ratio, 0.0)
    assert moved == pytest.approx(ratio, rel=0.03)
    products = np.arange(256) * moved
    assert moved * 256 == round(moved * 256)
    np.testing.assert_array_equal(np.rint(products), np.floor(products + 0.5))


@given(st.lists(st.floats(1e-4, 0.05), min_size=1, max_size=8), scales, scales)
def test_weights_follow_the_scales_around_them(weights: list[float], before: float, after: float) -> None:
    given_scales = np.array(weights, np.float32)
    moved = tie_free_weights(given_scales, np.float32(before), np.float32(after))
    np.testing.assert_allclose(moved, given_scales, rtol=0.02)
    for weight in moved:
        ratio = float(np.float32(np.float32(np.float32(before) * weight) / np.float32(after)))
        if ratio > 1 / 4000:
            assert fraction(ratio).denominator % 2 == 1


@given(scales, st.floats(0.2, 5), st.floats(0.2, 5), st.floats(0.2, 5))
def test_a_chain_of_sums_has_odd_multiples_of_one_unit(x: float, y: float, z: float, w: float) -> None:
    wanted = (x, x * y, x * z, x * w)
    moved = tie_free_scales(wanted, {}, [Sum((0, 1), 2), Sum((2, 0), 3)], [])
    np.testing.assert_allclose(moved, wanted, rtol=0.03)
    for result, terms in ((2, (0, 1)), (3, (2, 0))):
        for term in terms:
            ratio = fraction(moved[term] / moved[result], 1023)
            assert ratio.denominator % 2 == 1


@given(scales, scales, scales, st.integers(1, 64))
def test_products_and_means(x: float, y: float, z: float, count: int) -> None:
    products = [Product((0, 1), 2), Product((2,), 3, count)]
    wanted = (x, y, z * x * y, z * x * y / 3)
    moved = tie_free_scales(wanted, {}, [], products)
    assert fraction(moved[0] * moved[1] / moved[2]).denominator % 2 == 1
    assert fraction(moved[2] / moved[3] / count).denominator % 2 == 1
    np.testing.assert_allclose(moved, wanted, rtol=0.05)


@given(st.floats(2.0, 25.0), st.floats(0.7, 1.3), st.integers(2, 512))
def test_a_mean_that_its_own_elements_lose_has_no_ties(mean: float, rest: float, count: int) -> None:
    """``x - mean(x)``, as layer norms in parts have it: all three scales are multiples of one unit."""
    wanted = (1.0, 1 / mean, rest)
    moved = tie_free_scales(wanted, {}, [Sum((0, 1), 2)], [Product((0,), 1, count)])
    assert (fraction(moved[0] / moved[1], 1023) / count).denominator % 2 == 1
    assert all(fraction(moved[term] / moved[2], 1023).denominator % 2 == 1 for term in (0, 1))
    np.testing.assert_allclose(moved, wanted, rtol=0.031)


def test_the_mean_of_a_sum_keeps_the_sum_without_ties() -> None:
    moved = tie_free_scales((0.5, 0.4, 0.7, 0.1, 0.6), {}, [Sum((0, 1), 2), Sum((2, 3), 4)], [Product((2,), 3, 32)])
    for term, result in ((0, 2), (1, 2), (2, 4), (3, 4)):
        assert fraction(moved[term] / moved[result], 1023).denominator % 2 == 1


def test_prescribed_scales_stay_and_the_others_adapt() -> None:
    gate = 1 / 256
    wanted = (0.0371, gate, 0.0213)
    moved = tie_free_scales(wanted, {1: gate}, [], [Product((0, 1), 2), Product((0, 0), 2)])
    assert moved[1] == gate
    assert fraction(moved[0] * moved[1] / moved[2]).denominator % 2 == 1
    again = tie_free_scales((gate, 0.013, 0.0171), {0: gate}, [Sum((0, 1), 2)], [])
    assert again[0] == gate
    assert fraction(again[0] / again[2]).denominator % 2 == 1
    assert fraction(again[1] / again[2]).denominator % 2 == 1


def test_a_constant_term_takes_the_unit_of_the_sum() -> None:
    x, z = tie_free_scales((0.0123, 0.0456), {}, [Sum((0,), 1)], [])
    term = tie_free_term(0.00789, x, z)
    assert term == pytest.approx(0.00789, rel=0.05)
    assert fraction(term / z).denominator % 2 == 1
    assert tie_free_term(0.00789, 0.5, 1.0) == 0.00789  # half a step is a tie: nothing to be won


def test_what_meets_nothing_is_left_alone() -> None:
    assert tie_free_scales((0.1, 0.2), {}, [], []) == (0.1, 0.2)


@given(st.floats(1e-4, 10.0))
def test_quantizing_by_a_quotient_is_quantizing_by_a_product(scale: float) -> None:
    moved = np.float32(invertible(scale))
    assert scale * (1 - 2**-23) <= moved <= scale * 1.0006
    assert abs(float(moved) * float(np.float32(1) / moved) - 1) < 1e-9
