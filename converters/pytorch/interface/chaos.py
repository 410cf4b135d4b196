"""What can be said on a check feed at which a model's arithmetic is chaotic: little, yet not nothing."""

from __future__ import annotations

import numpy as np

from convertkit.stage import Outputs, Tolerance

_ULPS = 64.0
"""Another order of the same arithmetic is off by some dozens of roundings at most, each like one at the input."""


def beyond_chaos(wanted: Outputs, after_nudge: Outputs, got: Outputs, tolerance: Tolerance) -> str:
    """How ``got`` departs from ``wanted`` by more than roundings explain; empty where it does not.

    ``after_nudge`` is what the model itself says once its inputs move by one unit in the last place: a road that is
    right stays within some multiples of that move.
    """
    for name, want in wanted.items():
        have, moved_to = got[name], after_nudge[name]
        if want.dtype.kind != "f" or have.shape != want.shape or moved_to.shape != want.shape:
            continue
        known = np.isfinite(want) & np.isfinite(moved_to)
        if not np.isfinite(have[known]).all():
            return f"{name} is no number where the model gives one"
        exact = want[known].astype(np.float64)
        gap = np.abs(have[known] - exact).max(initial=0.0)
        moved = np.abs(moved_to[known] - exact).max(initial=0.0)
        allowed = max(tolerance.relative or 0.0, _ULPS * np.finfo(np.float32).eps) * np.abs(exact).max(initial=0.0)
        if gap > max(allowed, _ULPS * moved):
            return f"{name} departs by {gap:.2g}, where the last place of the inputs moves it by {moved:.2g}"
    return ""


def by_roundings(wanted: Outputs, after_nudge: Outputs, got: Outputs, tolerance: Tolerance) -> bool:
    """Whether ``got`` departs by more than ``tolerance``, and roundings explain all of it.

    So on a loud feed of a model that clips its result: what is off by some roundings of the loud value is off by more
    of the clipped one.
    """
    departs = False
    for name, want in wanted.items():
        have = got[name]
        if want.dtype.kind != "f" or have.shape != want.shape or not np.isfinite(want).all():
            if not np.array_equal(want, have, equal_nan=want.dtype.kind == "f"):
                return False
            continue
        gap = float(np.abs(have - want.astype(np.float64)).max(initial=0.0))
        departs |= gap > (tolerance.relative or 0.0) * float(np.abs(want).max(initial=0.0))
    return departs and not beyond_chaos(wanted, after_nudge, got, tolerance)
