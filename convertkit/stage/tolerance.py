"""What a step may change, and why that much."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What an artifact may differ from another one by, and why that much.

    A bound that is ``None`` is not checked.  ``relative`` bounds ``max |difference| / max |reference|``
    of each output.  ``lsb`` bounds the difference in units of the output tensor's scale and
    ``lsb_share`` is the share of elements (0 to 1) that must be within 1 LSB.  ``snr_db`` is the
    least signal-to-noise ratio; below ``warn_snr_db`` a step passes with a warning.  Where both
    LSB and SNR bounds are given, fulfilling either is enough.  ``same_integers`` says that the step computes the same
    integers: outputs that differ by more than 1 LSB, in more than 1 % of an output, or by more than ``FLOAT32`` where
    they have no scale, are held against the model's float64 twin, and against the looser bounds where it has none.
    ``near_ties`` says that the step's integer kernels round their own way what lies within that part of a step from a
    tie: an edge input beyond the bound in dB is held against what such roundings do to the model.
    ``short_integers`` says that the runtime holds fewer digits of integers than the graph, which the step's notes
    tell: integers far from zero are not compared.
    ``lossy`` marks steps that change
    numerics on purpose: from there on, the comparison with the source uses this tolerance.
    """

    reason: str
    relative: float | None = None
    lsb: float | None = None
    lsb_share: float = 0.99
    snr_db: float | None = None
    warn_snr_db: float | None = None
    lossy: bool = False
    same_integers: bool = False
    near_ties: float = 0.0
    short_integers: bool = False


EXACT = Tolerance("the step only moves data", relative=0.0)

FLOAT32 = Tolerance("the same float32 arithmetic in another order", relative=1e-5)

LOSSY = Tolerance("the step changes numerics on purpose", snr_db=3.0, warn_snr_db=20.0, lossy=True)
