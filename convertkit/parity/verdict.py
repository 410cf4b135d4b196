"""Holding measured differences against a tolerance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from convertkit.parity.compare import TensorDiff
from convertkit.stage import Tolerance


@dataclass(frozen=True, slots=True)
class ParityReport:
    """The comparison of one artifact with an earlier one.

    ``before`` and ``after`` name the artifacts (``onnx (pytorch)``).  ``failures`` and ``warnings`` are
    sentences; ``unproven`` says why the comparison has no power, empty where it has.
    """

    before: str
    after: str
    diffs: tuple[TensorDiff, ...]
    tolerance: Tolerance
    feeds: int
    failures: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    unproven: str = ""

    @property
    def passed(self) -> bool:
        """True only where the numbers agree and the comparison has the power to tell."""
        return not self.failures and not self.unproven

    @property
    def worst(self) -> TensorDiff | None:
        """The output with the largest relative difference."""
        return max(self.diffs, key=lambda diff: diff.relative, default=None)


def judge(before: str, after: str, diffs: tuple[TensorDiff, ...], tolerance: Tolerance, feeds: int) -> ParityReport:
    """Decide whether ``diffs`` stay within ``tolerance`` and prove anything at all."""
    failures = tuple(text for diff in diffs if (text := _failure(diff, tolerance)))
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
        warnings += [f'output "{diff.name}" is {diff.power}: equal, which proves little' for diff in weak]
    return ParityReport(before, after, diffs, tolerance, feeds, failures, tuple(warnings), unproven)


def _failure(diff: TensorDiff, tolerance: Tolerance) -> str:
    if diff.mismatch:
        return f'output "{diff.name}" {diff.mismatch}'
    exact = not tolerance.lossy and diff.dtype not in ("bfloat16",) and np.dtype(diff.dtype).kind not in "fcOUST"
    if exact and diff.max_abs and tolerance.snr_db is None and tolerance.lsb is None:
        return f'output "{diff.name}" ({diff.dtype}) differs by {diff.max_abs:.6g}, integers must be equal'
    if tolerance.relative is not None and diff.relative > tolerance.relative:
        return (
            f'output "{diff.name}" max_abs {diff.max_abs:.4g}, relative {diff.relative:.2e}, '
            f"allowed {tolerance.relative:.0e} ({tolerance.reason})"
        )
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


def _warning(diff: TensorDiff, tolerance: Tolerance) -> str:
    if tolerance.warn_snr_db is None or diff.snr_db >= tolerance.warn_snr_db or diff.mismatch:
        return ""
    return f'output "{diff.name}" keeps only {diff.snr_db:.1f} dB of signal over noise'
