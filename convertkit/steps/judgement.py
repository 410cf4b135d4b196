"""How strictly the steps of an export are judged."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Judgement:
    """How steps are judged.

    ``gated`` means that an accuracy gate judges lossy steps, not their SNR.  ``generated`` says that the usual inputs
    are not data of the user's: those on which the model is ill-conditioned do not count for a lossy step's noise.
    ``allow_unverified`` passes equal outputs that tell nothing.
    """

    gated: bool = False
    generated: bool = False
    allow_unverified: bool = False
