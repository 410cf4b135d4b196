"""What a quantized model keeps, and whether that is enough, without labels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from convertkit.good_enough import agrees
from convertkit.quantization.search.quality import Output, Quality, measure

RNG = np.random.default_rng(0)
PLAIN = Quality(50, 30.0, 30.0, 30.0, 30.0)
CLASSES = Quality(50, 25.0, 25.0, 25.0, 25.0, agreement=1.0, drop=0.0)


def output(arrays: list[np.ndarray]) -> Output:
    return Output("y", arrays, arrays)


def test_loud_samples_that_are_clipped_show_in_sum_and_quiet_ones_one_by_one() -> None:
    samples = [RNG.normal(0, 10.0 if index < 4 else 0.5, (1, 3, 8, 8)) for index in range(40)]
    clipped = measure([output(samples)], [output([each.clip(-8, 8) for each in samples])])
    assert clipped.snr_db < 15
    assert clipped.median_db == 80
    noisy = measure([output(samples)], [output([each + RNG.normal(0, 0.15, each.shape) for each in samples])])
    assert noisy.snr_db > 25
    assert noisy.median_db < 20
    assert not clipped.is_good
    assert not noisy.is_good


def test_silence_is_not_lost_to_a_little_noise() -> None:
    samples = [RNG.normal(0, 1, (1, 3, 8, 8)) * (index > 5) for index in range(40)]
    noisy = measure([output(samples)], [output([each + RNG.normal(0, 0.02, each.shape) for each in samples])])
    assert noisy.snr_db > 30
    assert noisy.is_good


def test_an_output_of_zeros_has_nothing_to_lose() -> None:
    zeros, other = output([np.zeros((1, 2, 3))] * 9), output([RNG.normal(0, 1, (1, 2, 3))] * 9)
    assert measure([zeros, other], [zeros, other]).is_good


def test_numbers_that_a_model_loses_are_the_worst_of_noise() -> None:
    samples = [RNG.normal(0, 1, (1, 4, 3)) for _ in range(9)]
    lost = [each.copy() for each in samples]
    lost[0][0, 0, 0] = np.nan
    assert measure([output(samples)], [output(lost)]).snr_db < 0


def test_classes_are_those_of_vectors_and_judged_where_they_leave() -> None:
    scores = [RNG.normal(0, 3, (1, 20)) for _ in range(40)]
    moved = [np.roll(each, 1) if index % 4 == 0 else each for index, each in enumerate(scores)]
    found = measure([output(scores)], [output(moved)])
    assert found.agreement == 0.75
    assert found.drop is not None
    assert found.drop > 5
    assert not found.is_good
    maps = [each.reshape(1, 20, 1, 1) for each in scores]
    assert measure([output(maps)], [output(maps)]).agreement is None


@pytest.mark.parametrize(
    ("quality", "good"),
    [
        (PLAIN, True),
        (replace(PLAIN, snr_db=19.9), False),
        (replace(PLAIN, before_db=19.9), False),
        (replace(PLAIN, median_db=19.9), False),
        (replace(PLAIN, p5_db=9.9), False),
        (replace(PLAIN, reconstruction_db=19.9), False),
        (CLASSES, True),
        (replace(CLASSES, snr_db=12.0), True),
        (replace(CLASSES, snr_db=9.9), False),
        (replace(CLASSES, median_db=9.9), False),
        (replace(CLASSES, agreement=0.9, drop=0.9), True),
        (replace(CLASSES, agreement=0.9, drop=1.1), False),
        (replace(CLASSES, agreement=0.9, drop=0.9, snr_db=19.0), False),
        (replace(CLASSES, agreement=0.9, drop=9.0, snr_db=31.0, before_db=31.0), False),
        (replace(CLASSES, agreement=0.9, drop=9.0, snr_db=31.0, before_db=31.0, has_scores=True), True),
        (
            replace(CLASSES, agreement=0.9, drop=9.0, snr_db=31.0, before_db=31.0, has_scores=True, median_db=19.0),
            False,
        ),
        (replace(CLASSES, agreement=0.9, drop=0.9, median_db=19.0), False),
        (replace(CLASSES, agreement=0.9, drop=0.9, p5_db=9.0), False),
    ],
)
def test_what_is_good_enough(quality: Quality, good: bool) -> None:
    assert quality.is_good is good


@pytest.mark.parametrize(
    ("missed", "samples", "enough"),
    [(0, 8, True), (1, 8, True), (2, 8, False), (1, 16, True), (2, 16, False), (2, 50, True), (3, 50, False)],
)
def test_few_samples_tell_less_than_many(missed: int, samples: int, enough: bool) -> None:
    assert agrees(1 - missed / samples, samples) is enough


def test_anomalies_are_told_by_errors_that_differ_and_not_by_what_all_share() -> None:
    given = [RNG.normal(0, 1, (1, 64)) for _ in range(50)]
    # What is left differs from sample to sample; both models leave nearly that.
    left = [RNG.normal(0, 0.3 + 0.02 * index, (1, 64)) for index in range(50)]
    made = [x + r for x, r in zip(given, left, strict=True)]
    expected = Output("y", made, made, given)
    same = measure([expected], [output([y + 0.01 * RNG.normal(0, 1, y.shape) for y in made])])
    other = measure([expected], [output([y + 0.6 * RNG.random() * r for y, r in zip(made, left, strict=True)])])
    assert same.agreement is None, "a reconstruction has no classes"
    assert same.is_good
    assert other.reconstruction_db is not None
    assert other.reconstruction_db < 10
    assert not other.is_good
