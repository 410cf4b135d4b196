"""Holding measured differences against a tolerance."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from convertkit.parity.bar import LEAST_LOSSY_SNR_DB
from convertkit.parity.compare import snr_db
from convertkit.parity.values import Departure, FeedDiff, ParityReport, TensorDiff
from convertkit.stage import FLOAT32, Tolerance

_CHANGED = 0.01
"""The share of an output's elements that single roundings may move to a neighbouring integer."""


def departs(diff: FeedDiff, dtype: str, tolerance: Tolerance) -> bool:
    """Whether one output for one feed differs by more than ``tolerance`` allows there, or from a limit at all.

    Bounds in LSB and dB hold for all feeds together; they allow no mismatch of a single one.
    """
    if diff.mismatch:
        return True
    if is_exact(dtype, tolerance):
        return diff.max_abs > 0
    if tolerance.same_integers:
        return are_other_integers(diff)
    return tolerance.relative is not None and (diff.relative > tolerance.relative or diff.off_limit or bool(diff.faint))


def are_other_integers(diff: FeedDiff) -> bool:
    """Whether an output differs by more than kernels do that compute the same integers."""
    if diff.step is None:
        return diff.relative > (FLOAT32.relative or 0.0)
    return diff.max_abs > 1.001 * diff.step or diff.changed > _CHANGED


def within(diff: FeedDiff, tolerance: Tolerance) -> bool:
    """Whether one feed's numbers stay within a tolerance of float arithmetic, its limits aside."""
    return not diff.mismatch and tolerance.relative is not None and diff.relative <= tolerance.relative


def is_rough(diff: FeedDiff, signal: float, step: float | None, tolerance: Tolerance) -> bool:
    """Whether an edge input shows more noise than a bound in dB allows, against the ``signal`` of usual feeds.

    ``signal`` is a mean square.  What a quantization cost is not judged here, but what a step adds to it.
    """
    if tolerance.lossy or tolerance.snr_db is None or diff.mismatch:
        return False
    within_lsb = tolerance.lsb is not None and step is not None and diff.max_abs <= 1.001 * tolerance.lsb * step
    return not within_lsb and snr_db(max(signal, diff.signal), diff.noise) < tolerance.snr_db


def is_exact(dtype: str, tolerance: Tolerance) -> bool:
    """Whether an output of that type has to be equal."""
    text = dtype.startswith("str")  # NumPy's names of text, such as str256, are not those that it takes
    whole = dtype != "bfloat16" and not text and np.dtype(dtype).kind not in "fcOUST"
    return whole and not tolerance.lossy and tolerance.snr_db is None and tolerance.lsb is None


def judge(
    before: str,
    after: str,
    diffs: tuple[TensorDiff, ...],
    tolerance: Tolerance,
    feeds: int,
    departures: Sequence[Departure] = (),
    edges: tuple[str, ...] = (),
    picked: Collection[str] = (),
) -> ParityReport:
    """Decide whether ``diffs`` and ``departures`` stay within ``tolerance`` and prove anything at all.

    ``picked`` names outputs that tell classes best first: of those that hardly score the order is rounding's, so that
    half of them have to be the same, and the scores beside them are held to the tolerance.
    """
    bounds = {diff.name: _of_picked(tolerance) if diff.name in picked else tolerance for diff in diffs}
    failures = [text for diff in diffs if (text := _failure(diff, departures, bounds[diff.name]))]
    warnings = [text for diff in diffs if (text := _warning(diff, tolerance))]
    weak = [diff for diff in diffs if diff.power != "ok"]
    unproven = ""
    if not diffs:
        unproven = "the artifact has no outputs to compare"
    elif len(weak) == len(diffs):
        unproven = "; ".join(f'output "{diff.name}" is {diff.power}' for diff in weak)
    else:
        # An output that is constant by nature (anchors, a version) may stand beside live ones if it is equal.
        unproven = "; ".join(f'output "{d.name}" is {d.power}' for d in weak if d.max_abs and not tolerance.lossy)
        warnings += [f'output "{diff.name}" is {diff.power}: equal, which tells little' for diff in weak]
    return ParityReport(
        before, after, diffs, tolerance, feeds, tuple(failures), tuple(warnings), unproven, tuple(departures), edges
    )


def _of_picked(tolerance: Tolerance) -> Tolerance:
    if tolerance.snr_db is None or tolerance.snr_db <= LEAST_LOSSY_SNR_DB:
        return tolerance
    return replace(tolerance, snr_db=LEAST_LOSSY_SNR_DB)


def _failure(diff: TensorDiff, departures: Sequence[Departure], tolerance: Tolerance) -> str:
    faults = [each for each in departures if each.output == diff.name and not each.explained]
    if faults:
        return _fault(diff, max(faults, key=lambda each: each.diff.relative), tolerance)
    if tolerance.same_integers and any(each.output == diff.name for each in departures):
        return ""  # the twin explains all of them, however far they are in dB
    if tolerance.snr_db is None and tolerance.lsb is None:
        return ""
    within_lsb = (
        tolerance.lsb is not None
        and diff.lsb is not None
        and diff.lsb_share is not None
        and diff.lsb <= 1.001 * tolerance.lsb
        and diff.lsb_share >= tolerance.lsb_share
    )
    if within_lsb or (tolerance.snr_db is not None and diff.snr_db >= tolerance.snr_db):
        return ""
    measured = f"SNR {diff.snr_db:.1f} dB" + (f", {diff.lsb:.1f} LSB" if diff.lsb is not None else "")
    allowed = f"at least {tolerance.snr_db:g} dB" if tolerance.snr_db is not None else f"{tolerance.lsb:g} LSB"
    return f'output "{diff.name}" max_abs {diff.max_abs:.4g}, {measured}, allowed {allowed} ({tolerance.reason})'


def _fault(diff: TensorDiff, worst: Departure, tolerance: Tolerance) -> str:
    where = f"on input {worst.feed}"
    if worst.diff.mismatch:
        return f'output "{diff.name}" {worst.diff.mismatch}, {where}'
    if is_exact(diff.dtype, tolerance):
        return (
            f'output "{diff.name}" ({diff.dtype}) differs by {worst.diff.max_abs:.6g} {where}, integers must be equal'
        )
    if worst.diff.faint and within(worst.diff, tolerance) and not worst.diff.off_limit:
        faint = worst.diff.faint[0]
        return (
            f'output "{diff.name}" differs {where} by {faint.relative:.2e} of what it holds at {faint.place} of axis '
            f"{faint.axis}, too little to show beside {worst.diff.largest:.4g} elsewhere ({tolerance.reason})"
        )
    if tolerance.same_integers and worst.diff.step and not worst.rough:
        steps = worst.diff.max_abs / worst.diff.step
        return (
            f'output "{diff.name}" max_abs {worst.diff.max_abs:.4g}, {steps:.1f} LSB, {where}; '
            f"{worst.diff.changed:.1%} of its elements are other integers; allowed 1 LSB in {_CHANGED:.0%} of them, or "
            f"what float64 tells that roundings move ({tolerance.reason})"
        )
    measured = f'output "{diff.name}" max_abs {worst.diff.max_abs:.4g}, relative {worst.diff.relative:.2e} {where}'
    if tolerance.same_integers and not worst.rough:
        return f"{measured}; allowed what float64 tells that roundings move ({tolerance.reason})"
    allowed = f"{tolerance.relative:.0e}" if tolerance.relative is not None else f"at least {tolerance.snr_db:g} dB"
    return f"{measured}, allowed {allowed} ({tolerance.reason})"


def _warning(diff: TensorDiff, tolerance: Tolerance) -> str:
    if tolerance.warn_snr_db is None or diff.snr_db >= tolerance.warn_snr_db or diff.mismatch:
        return ""
    return f'output "{diff.name}" keeps only {diff.snr_db:.1f} dB of signal over noise'
