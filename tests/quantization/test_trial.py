"""The drop that is expected without labels."""

from __future__ import annotations

import numpy as np
import pytest

from convertkit.quantization.search.levels import expected_drop
from convertkit.quantization.search.quality import Output
from convertkit.quantization.search.trial import Score, compare

LOGITS = np.random.default_rng(0).normal(0, 2, (1, 5, 4, 4))


def belief_lost(logits: np.ndarray, shift: int) -> float:
    """By brute force, pixel by pixel, in points: what choosing another class costs by the float model's softmax."""
    pixels = [logits[0, :, row, column] for row in range(4) for column in range(4)]
    losses = []
    for scores in pixels:
        beliefs = np.exp(scores) / np.exp(scores).sum()
        losses.append(beliefs.max() - beliefs[(scores.argmax() + shift) % 5])
    return 100 * float(np.mean(losses))


@pytest.mark.parametrize("layout", [(0, 1, 2, 3), (0, 2, 3, 1)], ids=["NCHW", "NHWC"])
def test_every_pixel_is_a_sample_and_channels_are_its_classes(layout: tuple[int, ...]) -> None:
    moved = np.roll(LOGITS, 2, axis=1)
    drop = expected_drop([LOGITS.transpose(layout)], [moved.transpose(layout)])
    assert drop == pytest.approx(belief_lost(LOGITS, 2))
    assert drop > 10


def test_scores_that_keep_their_order_lose_nothing() -> None:
    # Along a row of pixels the order changes, among the classes of each pixel it does not.
    brighter = LOGITS + np.arange(4) * 10
    assert expected_drop([LOGITS], [brighter]) == 0


def test_a_classifier_of_one_pixel_has_classes() -> None:
    scores = LOGITS[:, :, :1, :1]
    outputs = [(Output("y", [each], [each]),) for each in (scores, -scores)]
    assert compare(*outputs).drop > 10


@pytest.mark.parametrize(
    ("levels", "good"),
    [((25.0,) * 16, True), ((19.0,) * 9 + (40.0,) * 7, False), ((9.0,) * 2 + (40.0,) * 14, False)],
    ids=["all", "most are noise", "some are lost"],
)
def test_few_samples_do_not_make_up_for_the_others(levels: tuple[float, ...], good: bool) -> None:
    assert Score(np.full((2, 16), 1e-3), 30.0, 0.0, np.array(levels)).is_good is good


def test_each_sample_counts_against_its_own_signal() -> None:
    loud, quiet = np.full((1, 8), 1.0), np.full((1, 8), 0.2)
    expected, got = [loud, quiet], [loud, quiet + 0.1]
    found = compare((Output("y", expected, expected),), (Output("y", got, got),))
    assert found.each_db[1] == pytest.approx(6.02, abs=0.01)
    assert not found.is_good


@pytest.mark.parametrize(("lost", "better"), [(0.0, True), (0.5, False)])
def test_a_sample_that_is_lost_is_not_made_up_for_by_the_others(lost: float, better: bool) -> None:
    plain = Score(np.full((2, 8), 1e-2), 20.0, 0.0, np.full(8, 20.0))
    other = np.full((2, 8), 5e-3)
    other[:, 3] += lost
    assert Score(other, 20.0, 0.0, np.full(8, 20.0)).beats(plain) is better
    assert (Score(other, 20.0, 0.0, np.full(8, 20.0)).snr_db > plain.snr_db) is better
