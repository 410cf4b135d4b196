"""When two sets of outputs count as the same."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# float32 rounding of sums: relative to the largest value of an output, whatever the order of addition.  The
# suite's outputs were partly computed in float64: its atol of 1e-7 asks for zeros that no float32 sum gives.
SCALED = 1e-5
SIGNAL_DB = 20.0
"""What a model in integers keeps: the pipeline's own floor for engines."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """``reason`` is empty where the outputs agree; ``worst`` is the largest relative error seen.

    ``is_lossy`` where all that is to be said is how little of the signal integers keep.
    """

    reason: str
    worst: float
    is_lossy: bool = False


def compare(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray], rtol: float, atol: float) -> Verdict:
    """Names and their order, shapes, element types and values; integers and booleans exactly.

    ``rtol`` and ``atol`` are the suite's own and hold for each element.  An error up to 1e-5 of the output's
    largest value passes too: an element that cancels to almost zero carries the rounding of what it was
    summed from.
    """
    if list(found) != list(wanted):
        return Verdict(f"names {list(found)}, expected {list(wanted)}", np.inf)
    worst = 0.0
    for name, want in wanted.items():
        verdict = _compare_one(name, found[name], np.asarray(want), rtol, atol)
        worst = max(worst, verdict.worst)
        if verdict.reason:
            return Verdict(verdict.reason, worst)
    return Verdict("", worst)


def _compare_one(name: str, have: np.ndarray, want: np.ndarray, rtol: float, atol: float) -> Verdict:
    if have.dtype != want.dtype:
        return Verdict(f"{name}: {have.dtype}, expected {want.dtype}", np.inf)
    if have.shape != want.shape:
        return Verdict(f"{name}: shape {have.shape}, expected {want.shape}", np.inf)
    if want.dtype.kind in "iub":
        differing = int((have != want).sum())
        return Verdict(f"{name}: {differing} of {want.size} differ" if differing else "", float(bool(differing)))
    same = (have == want) | (np.isnan(have) & np.isnan(want))
    finite = np.isfinite(have) & np.isfinite(want)
    if not (same | finite).all():
        return Verdict(f"{name}: NaN or infinity in other places", np.inf)
    with np.errstate(invalid="ignore"):  # infinity minus infinity, where they are the same
        error = np.where(finite & ~same, np.abs(have.astype(np.float64) - want.astype(np.float64)), 0.0)
    largest = float(np.abs(np.where(finite, want, 0)).max(initial=0.0))
    allowed = atol + rtol * np.abs(np.where(finite, want, 0))
    relative = float(error.max(initial=0.0)) / max(largest, 1e-30)
    if (error <= allowed).all() or relative <= SCALED:
        return Verdict("", relative)
    return Verdict(f"{name}: max error {error.max():.3g}, largest value {largest:.3g}", relative)


def keeps_signal(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray], *, rounded: bool = False) -> Verdict:
    """For a model in integers: the same names, types and shapes, at least 20 dB of each float output.

    So are integers where they stand for real numbers that were ``rounded``, which a kernel does its own way at ties.
    """
    kinds = "fiu" if rounded else "f"
    typed = {name: np.asarray(want) for name, want in wanted.items()}
    exact = compare(_real(found, typed, kinds), _real(typed, typed, kinds), 0.0, np.inf)
    if exact.reason:
        return exact
    for name, want in typed.items():
        signal = float((want.astype(np.float64) ** 2).sum())
        noise = float(((found[name].astype(np.float64) - want) ** 2).sum())
        if want.dtype.kind in kinds and noise > signal * 10 ** (-SIGNAL_DB / 10):
            decibels = 10 * np.log10(signal / noise) if signal else -np.inf
            return Verdict(f"{name}: {decibels:.1f} dB of the signal", exact.worst, is_lossy=True)
    return Verdict("", exact.worst)


def _real(arrays: dict[str, np.ndarray], wanted: dict[str, np.ndarray], kinds: str) -> dict[str, np.ndarray]:
    """Integers of the wanted type as real numbers, where they stand for such."""
    return {
        name: array.astype(np.float64)
        if name in wanted and array.dtype == wanted[name].dtype and array.dtype.kind in kinds
        else array
        for name, array in arrays.items()
    }
