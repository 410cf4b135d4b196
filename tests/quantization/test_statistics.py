"""Histograms, ranges and rounding against brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from convertkit.quantization.calibrate.histogram import Histogram, Statistics
from convertkit.quantization.calibrate.ranges import METHODS, affine, divergence, noise, snr_db, span
from convertkit.quantization.weights.integers import best_scales, quantize_bias, quantize_weight


def seen(*arrays: np.ndarray) -> Statistics:
    statistics = Statistics()
    for array in arrays:
        statistics.add(float(array.min()), float(array.max()), array.astype(np.float32))
    return statistics


@settings(max_examples=50, deadline=None)
@example([2.0, 1.0], 2)
@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=60), st.integers(1, 5))
def test_histogram_counts_everything_in_any_order_of_magnitude(values: list[float], parts: int) -> None:
    array = np.array(values, np.float32)
    whole, merged = Histogram(), Histogram()
    for part in np.array_split(array, parts):
        whole.add(part)
        other = Histogram()
        other.add(part)
        merged.merge(other)
    assert whole.total == merged.total == array.size
    np.testing.assert_array_equal(whole.counts, merged.counts)


def test_a_weight_counts_as_often() -> None:
    values = np.random.default_rng(0).normal(0, 1, 500).astype(np.float32) * (np.arange(500) % 3 > 0)
    weighted, repeated = Histogram(), Histogram()
    weighted.add(values, 3)
    for _ in range(3):
        repeated.add(values)
    assert weighted.zeros == repeated.zeros > 0
    np.testing.assert_array_equal(weighted.counts, repeated.counts)


def test_negative_zeros_are_zeros() -> None:
    histogram = Histogram()
    histogram.add(np.array([-0.0, 0.0, -1.0, 1.0], np.float32))
    assert (histogram.zeros, int(histogram.counts.sum())) == (2, 2)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("symmetric", [False, True])
def test_methods_stay_inside_what_was_seen(method: str, symmetric: bool) -> None:
    rng = np.random.default_rng(0)
    statistics = seen(*(rng.laplace(0.5, 1, 4000) for _ in range(8)))
    low, high = span(statistics, method, "int8", symmetric)
    assert statistics.low <= low <= 0 <= high <= statistics.high


def test_noise_on_the_histogram_is_the_measured_noise() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(0, 1, 200_000).astype(np.float32)
    statistics = seen(values)
    for limit in (1.5, 3.0, 4.5):
        parameters = affine((-limit, limit), "int8", False)
        measured = float(np.square(values - parameters.round_trip(values)).mean())
        assert noise(statistics.histogram, parameters) == pytest.approx(measured, rel=0.05)


def test_mse_clips_long_tails_and_minmax_does_not() -> None:
    values = np.random.default_rng(0).laplace(0, 1, 400_000)
    statistics = seen(values)
    whole = affine(span(statistics, "minmax", "int8", False), "int8", False)
    clipped = affine(span(statistics, "mse", "int8", False), "int8", False)
    assert clipped.scale < 0.8 * whole.scale
    assert snr_db(statistics.histogram, clipped) > 1 + snr_db(statistics.histogram, whole)


def test_zero_is_exact_and_a_silent_tensor_has_a_scale() -> None:
    for limits in ((-0.3, 5.0), (0.0, 6.0), (-7.0, 0.0), (2.0, 3.0), (0.0, 0.0)):
        parameters = affine(limits, "int8", False)
        assert parameters.round_trip(np.zeros(1))[0] == 0.0
        assert -128 <= parameters.zero_point <= 127
        assert parameters.scale > 0


def test_few_bits_clip() -> None:
    rng = np.random.default_rng(0)
    weight = rng.standard_t(3, (8, 256)).astype(np.float32)
    plain = quantize_weight(weight, 0, (-7, 7)).real()
    best = quantize_weight(weight, 0, (-7, 7), best_scales(weight, 0, (-7, 7))).real()
    assert np.square(best - weight).sum() < 0.8 * np.square(plain - weight).sum()


def test_bias_is_rounded_in_steps_of_the_product() -> None:
    bias = np.array([1.0, -2.5, 0.0], np.float32)
    integers, scales = quantize_bias(bias, 0.02, np.array([0.1, 0.2, 0.3], np.float32), "int32")
    np.testing.assert_allclose(integers * scales, bias, atol=scales.max())
    assert integers.dtype == np.int32


def divergence_by_definition(bins: np.ndarray, counts: np.ndarray, limit: int) -> float:
    """KL(P‖Q) of one clipping, written out bin by bin as the method's inventors describe it, for 8-bit unsigned.

    ``bins`` are the centres of positive values in units of the finest bin; the first ``limit`` bins stay, what
    lies beyond is counted into the last of them that is not empty, in P alone; Q has 255 levels of equal
    width and every level's mass is spread evenly over its bins that are not empty.
    Source: S. Migacz, "8-bit Inference with TensorRT", 2017.
    """
    p = [float(count) for count in counts[:limit]]
    p[max(place for place in range(limit) if counts[place])] += float(counts[limit:].sum())
    members: dict[int, list[int]] = {}
    for place in range(limit):
        if counts[place]:
            members.setdefault(round(float(bins[place]) / (limit / 255)), []).append(place)
    q = [0.0] * limit
    for places in members.values():
        for place in places:
            q[place] = sum(float(counts[each]) for each in places) / len(places)
    return sum(a / sum(p) * float(np.log((a / sum(p)) / (b / sum(q)))) for a, b in zip(p, q, strict=True) if a > 0)


def test_entropy_picks_the_range_of_least_divergence() -> None:
    rng = np.random.default_rng(3)
    values = np.abs(np.concatenate([rng.laplace(0, 1, 300_000), rng.uniform(10, 12, 30)])).astype(np.float32)
    statistics = seen(values)
    histogram = statistics.histogram
    half = len(histogram.counts) // 2
    counts, width, high = histogram.counts[half:], 2.0**histogram.exponent / half, float(values.max())
    shrinks = np.linspace(1.0, 0.2, 17)
    limits = [min(int(np.ceil(high * shrink / width)), int(np.flatnonzero(counts)[-1]) + 1) for shrink in shrinks]
    expected = [divergence_by_definition(np.arange(half) + 0.5, counts, limit) for limit in limits]
    got = [divergence(histogram, affine((0.0, high * shrink), "int8", False)) for shrink in shrinks]
    # They round a bin at a level's edge differently.
    np.testing.assert_allclose(got, expected, rtol=0.07)
    assert 0 < int(np.argmin(got)) < len(shrinks) - 1
    low, chosen = span(statistics, "entropy", "int8", False)
    assert low == 0
    assert abs(chosen - high * shrinks[int(np.argmin(expected))]) < 1e-3 * high
