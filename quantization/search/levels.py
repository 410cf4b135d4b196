"""Levels in dB, and what a classifier loses in the eyes of the float model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from convertkit.artifact import Array

BEST_DB = 80.0
"""Beyond this an output counts as exact."""
_SEQUENCE_RANK = 3
"""Outputs of at most this rank, ``(N, classes)`` and ``(N, tokens, classes)``, have their classes last."""


def decibels(shares: Array) -> Array:
    """Levels of noise that is given as shares of the signal's power."""
    return np.asarray(-10 * np.log10(np.maximum(shares, 10 ** (-BEST_DB / 10))))


def expected_drop(expected: Sequence[Array], got: Sequence[Array]) -> float:
    """Points of top-1 accuracy that the float model itself expects to be lost.

    Classes lie where :func:`class_axis` says; every other place (a pixel, a token) counts as a sample.
    """
    losses = []
    for reference, output in zip(expected, got, strict=True):
        axis = class_axis(reference)
        scores, others = (np.moveaxis(each, axis, -1).reshape(-1, each.shape[axis]) for each in (reference, output))
        belief = _probabilities(scores.astype(np.float64))
        losses.append(belief.max(-1) - belief[np.arange(len(belief)), others.argmax(-1)])
    return 100.0 * float(np.concatenate(losses).mean())


def class_axis(output: Array) -> int:
    """Of images' classes ``(N, C, H, W)`` the second axis, unless only ``(N, H, W, C)`` makes the images square."""
    square = output.ndim > _SEQUENCE_RANK and output.shape[1] == output.shape[2] != output.shape[-1]
    return output.ndim - 1 if output.ndim <= _SEQUENCE_RANK or square else 1


def _probabilities(scores: Array) -> Array:
    if scores.min() >= 0 and np.allclose(scores.sum(-1), 1.0, atol=1e-3):
        return scores
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))
