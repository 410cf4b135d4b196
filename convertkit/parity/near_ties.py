"""Edge inputs on which the roundings of an engine decide.

An NPU rounds what lies near a tie its own way, in every layer.  Where a softmax is undecided, on a constant picture
say, such roundings alone move the result further than any fixed bound in dB.  How near a tie is, is measured for an
engine; runs of the model's float64 twin that round so at random tell what that does to one input.  An artifact may be
about as far from the model as these runs are.  Usual inputs have to keep the bound in dB all the same.
"""

from __future__ import annotations

import numpy as np

from convertkit.artifact import Array
from convertkit.parity.truth import TYPICAL, Truth
from convertkit.parity.values import Departure

_AS_FAR = 1.5
"""How many times the distance of the furthest run, in root mean square, an artifact may be off."""
_OF_ELEMENTS = 3.0
"""How many times the largest change of an element, or of three quarters of them if larger."""


def own_roundings(departure: Departure, reference: Array, got: Array, near_ties: float, truth: Truth | None) -> str:
    """How an engine's roundings explain that ``got`` is not ``reference``; empty where they do not.

    ``near_ties`` is how far from a tie, in steps, they are.  ``reference`` is the model's result in integers.
    """
    if truth is None or departure.diff.mismatch:
        return ""
    name = departure.output
    value = truth.values[name].astype(np.float64)
    if not reference.shape == got.shape == value.shape or not np.isfinite(got).all():
        return ""
    moved = [np.abs(run[name].astype(np.float64) - value) for run in truth.near_ties(near_ties)]
    far = max(map(_power, moved))
    if _power(reference - value) > far or _power(got - value) > _AS_FAR * far:
        return ""
    spread = np.max(moved, axis=0)
    allowed = _OF_ELEMENTS * np.maximum(spread, np.quantile(spread, TYPICAL)) + (departure.diff.step or 0.0)
    if (np.abs(got - value) > allowed).any():
        return ""
    return (
        f"roundings within {near_ties:g} of a step from ties move it by up to {far:.2g} in root mean square, "
        f"and this is {_power(got - value):.2g} off"
    )


def _power(apart: Array) -> float:
    """Root mean square; not finite where an element is not."""
    return float(np.sqrt(np.mean(np.square(apart, dtype=np.float64))))
