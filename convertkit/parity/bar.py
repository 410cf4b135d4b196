"""The loosest tolerance that a stage may ask for: no stage lowers the bar by itself."""

from __future__ import annotations

from convertkit.stage import Tolerance

LOOSEST_RELATIVE = 2.0**-6
"""A few roundings of bfloat16, which keeps eight bits: the coarsest floats that a source computes in."""
LOOSEST_LSB = 3.0
LEAST_LSB_SHARE = 0.99
LOOSEST_NEAR_TIES = 0.5
"""Of a step from a tie: what rounds further off gives another integer than either neighbour."""
LEAST_SNR_DB = 15.0
"""Where integers are computed again: what differs is single steps, and what depth makes of them."""
LEAST_LOSSY_SNR_DB = 3.0
"""Below it, more than half of a signal's power is noise; whether that is good enough, the accuracy gate decides."""


def below_the_bar(tolerance: Tolerance) -> str:
    """What of ``tolerance`` is looser than any stage may be, in words; empty where nothing is."""
    snr_db = LEAST_LOSSY_SNR_DB if tolerance.lossy else LEAST_SNR_DB
    if tolerance.relative is not None and not 0 <= tolerance.relative <= LOOSEST_RELATIVE:
        return f"relative {tolerance.relative:g}; at most {LOOSEST_RELATIVE:g} is allowed"
    if tolerance.snr_db is not None and not tolerance.snr_db >= snr_db:
        return f"an SNR of {tolerance.snr_db:g} dB; at least {snr_db:g} dB is required"
    if tolerance.lsb is not None and not 0 <= tolerance.lsb <= LOOSEST_LSB:
        return f"{tolerance.lsb:g} LSB; at most {LOOSEST_LSB:g} is allowed"
    if tolerance.lsb is not None and not tolerance.lsb_share >= LEAST_LSB_SHARE:
        return f"{tolerance.lsb_share:g} of the elements within 1 LSB; at least {LEAST_LSB_SHARE:g} is required"
    if not 0 <= tolerance.near_ties <= LOOSEST_NEAR_TIES:
        return f"roundings within {tolerance.near_ties:g} of a step from ties; at most {LOOSEST_NEAR_TIES:g} is allowed"
    if tolerance.relative is None and tolerance.snr_db is None and tolerance.lsb is None:
        return "no bound at all; one of relative, snr_db and lsb is required"
    return ""
