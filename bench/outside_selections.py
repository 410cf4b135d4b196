"""Whether a NonMaxSuppression may select these boxes: which of equal candidates it takes is up to roundings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

TIES = 2.0**-21
"""Scores that are nearer than four roundings of float32 tie: a sigmoid's vector form and its scalar form differ by so
much."""


@dataclass(frozen=True)
class Candidates:
    """Boxes as two corners each, their scores, how many are taken at most, and what overlap suppresses."""

    boxes: np.ndarray
    scores: np.ndarray
    most: int
    overlap: float


def may_select(selected: np.ndarray, given: Candidates) -> bool:
    """Whether each selected box is among the best that those before it leave, and none is left at the end."""
    left = np.ones(len(given.scores), bool)
    for place in selected.tolist():
        if not left[place] or given.scores[place] < given.scores[left].max() * (1 - TIES):
            return False
        left &= ~_suppressed(place, given)
        left[place] = False
    return len(selected) == given.most or not left.any()


def _suppressed(place: int, given: Candidates) -> np.ndarray:
    """Which boxes overlap with that one by more than is allowed; boxes without area overlap with none."""
    low, high = np.minimum(given.boxes[:, :2], given.boxes[:, 2:]), np.maximum(given.boxes[:, :2], given.boxes[:, 2:])
    areas = (high - low).prod(1)
    shared = np.maximum(np.minimum(high, high[place]) - np.maximum(low, low[place]), 0).prod(1)
    whole = areas + areas[place] - shared
    return (areas > 0) & (areas[place] > 0) & (shared > given.overlap * whole)
