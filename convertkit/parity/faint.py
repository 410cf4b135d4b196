"""Slices of an output that hold little beside others: scores of 1 behind coordinates of 640.

An error is measured against the largest value of an output, so that all of the scores may be wrong by a part of a
coordinate.  Slices along each axis are therefore held against their own largest value, too, by a looser bound: in which
of them roundings cancel, the float64 twin tells.
"""

from __future__ import annotations

import numpy as np

from convertkit.artifact import Array
from convertkit.parity.truth import explanation
from convertkit.parity.values import Faint

LOOSER = 100.0
"""How many times the tolerance of an output the part of a slice is that it may differ by."""
_AT_ONE = float(np.finfo(np.float32).eps)
"""The last digit of 1: runtimes compute functions between 0 and 1 no finer.  ONNX Runtime's Sigmoid is 0 below -18."""
_LEAST_ELEMENTS = 8
"""Of a slice with fewer elements all may lie about zero by chance."""


def faint_slices(reference: Array, got: Array, bound: float) -> tuple[Faint, ...]:
    """The slices that differ by more than ``bound`` of their own largest value, the worst first.

    None of them where a result is not finite somewhere; a slice of zeros has no value to be held against.  An error
    below the last digit of 1, or of an output's largest value where that is below 1, does not count.
    """
    if not (np.isfinite(reference).all() and np.isfinite(got).all()):
        return ()
    found = []
    size, apart = np.abs(reference.astype(np.float64)), np.abs(got.astype(np.float64) - reference)
    least = _AT_ONE * min(1.0, size.max(initial=0.0))
    for axis in range(reference.ndim):
        if reference.shape[axis] < 2 or reference.size // reference.shape[axis] < _LEAST_ELEMENTS:
            continue
        others = tuple(each for each in range(reference.ndim) if each != axis)
        largest, error = size.max(others), apart.max(others)
        for place in np.flatnonzero((error > np.maximum(bound * largest, least)) & (largest > 0)):
            found.append(Faint(axis, int(place), float(error[place] / largest[place])))
    return tuple(sorted(found, key=lambda each: -each.relative))


def explained_slices(
    faint: tuple[Faint, ...],
    reference: Array,
    got: Array,
    truth: tuple[Array, Array],
    bound: float,
    calls: int,
    *,
    picked: bool,
) -> str:
    """How roundings explain every slice, by its own largest value; empty where they do not.

    ``truth`` has the true values and their spread; the others are those of :func:`.truth.explanation`.
    """
    told = ""
    for each in faint:
        value, spread = map(each.of, truth)
        if not (told := explanation(each.of(reference), each.of(got), value, spread, bound, calls, picked=picked)):
            return ""
    return told
