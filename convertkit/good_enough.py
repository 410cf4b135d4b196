"""When what a quantized model keeps is enough: the rule of ``docs/explanation/good-enough.md``, without arrays."""

from __future__ import annotations

from math import comb

GOOD_DB = 20.0
"""Noise at a hundredth of the signal's power: below it a person looks at a result before it ships."""
LEAST_DB = 10.0
"""Noise at a tenth of the signal's power: below this nothing is delivered that no accuracy gate has judged."""
AGREEMENT = 0.99
_CHANCE = 0.05
"""How probable so many disagreements must be at :data:`AGREEMENT` to count as agreement: samples are few."""


def keeps_samples(snr_db: float, median_db: float, p5_db: float) -> bool:
    """Whether noise is low in sum and sample by sample: a few loud samples may hold nearly all of the signal."""
    return snr_db >= GOOD_DB and median_db >= GOOD_DB and p5_db >= LEAST_DB


def agrees(agreement: float, samples: int) -> bool:
    """Whether as many disagreements are to be expected of a model that agrees on :data:`AGREEMENT` of all inputs.

    One flip among 50 is what such a model shows in two runs of five.
    """
    missed = round((1 - agreement) * samples)
    rarer = sum(comb(samples, k) * (1 - AGREEMENT) ** k * AGREEMENT ** (samples - k) for k in range(missed))
    return 1 - rarer >= _CHANCE
