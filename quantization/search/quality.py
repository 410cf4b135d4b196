"""What a quantized model keeps of the float one on samples that calibration has not seen, and whether that is enough.

No labels are needed.  Outputs ``(N, classes)`` are judged by how often both models prefer the same class, what
reconstructs an input behind a bottleneck by the errors that an anomaly is told by, all else by SNR: in sum, because
loud samples matter, and sample by sample, because they are not all that matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from convertkit.artifact import NEXT_STATE_PREFIX, Array
from convertkit.good_enough import AGREEMENT, GOOD_DB, LEAST_DB, agrees, keeps_samples
from convertkit.quantization.search.levels import BEST_DB, decibels, expected_drop

CLEAR_DB = 30.0
"""Beyond this a vector of scores that is not behind a softmax may be anything; its order is not looked at."""
_QUIETEST = 0.01
"""A sample's own signal counts as at least this share of the mean one: silence is not lost to a little noise."""


@dataclass(frozen=True, slots=True)
class Output:
    """One output for every sample: as it leaves the model, and as it is before a softmax or sigmoid.

    ``reconstructed``: the input of the same shape that the output reconstructs, for every sample; empty where there is
    none.
    """

    name: str
    values: Sequence[Array]
    before: Sequence[Array]
    reconstructed: Sequence[Array] = ()

    @property
    def has_classes(self) -> bool:
        """Whether each sample has one vector of scores, ``(N, classes)``."""
        first = self.values[0]
        plain = not self.reconstructed and not self.name.startswith(NEXT_STATE_PREFIX)
        return plain and first.ndim == 2 and first.shape[1] > 1

    @property
    def squashed(self) -> bool:
        """Whether a softmax or sigmoid makes the output."""
        return self.values is not self.before and self.values[0] is not self.before[0]


@dataclass(frozen=True, slots=True)
class Quality:
    """What the worst output of a model keeps, by ``samples`` samples.

    ``snr_db``, its ``median_db`` and ``p5_db`` over samples are of what leaves the model, ``before_db`` is that in
    front of a softmax or sigmoid.  ``agreement`` is the share of samples whose greatest score stays where it is, and
    ``drop`` the points of top-1 that the float model's own scores expect to be lost; None where no output has classes.
    ``reconstruction_db`` is the variance of the samples' reconstruction errors over what is added to them.
    """

    samples: int
    snr_db: float
    median_db: float
    p5_db: float
    before_db: float
    agreement: float | None = None
    drop: float | None = None
    reconstruction_db: float | None = None
    has_scores: bool = False

    @property
    def is_good(self) -> bool:
        """Whether an engineer would ship it without asking."""
        if self.reconstruction_db is not None and self.reconstruction_db < GOOD_DB:
            return False
        level = min(self.snr_db, self.before_db)
        clean = keeps_samples(level, self.median_db, self.p5_db)
        if self.agreement is None or self.drop is None:
            return clean
        if self.has_scores and clean and level >= CLEAR_DB:
            return True
        # A flip between classes that the float model holds for equally likely costs nothing.
        decided = clean and self.drop <= 100 * (1 - AGREEMENT)
        return self.is_bearable and (decided or agrees(self.agreement, self.samples))

    @property
    def is_bearable(self) -> bool:
        """Whether it may be delivered at all where no accuracy gate has judged it."""
        return self.snr_db >= LEAST_DB and self.median_db >= LEAST_DB

    def told(self, *, seen: bool = False) -> str:
        """The figures in words: ``4.6 dB and 79.1 % agreement with float on 16 held-out samples``.

        ``seen``: there were too few samples to hold any out.
        """
        parts = [f"{self.snr_db:.1f} dB"]
        if self.median_db < GOOD_DB <= self.snr_db or self.median_db < LEAST_DB <= self.snr_db:
            parts[0] += f", {self.median_db:.1f} dB of the median sample,"
        if self.agreement is not None:
            parts.append(f"{100 * self.agreement:.1f} % agreement with float")
        if self.reconstruction_db is not None:
            parts.append(f"{self.reconstruction_db:.1f} dB of the reconstruction errors")
        which = "samples that weights were fitted to" if seen else "held-out samples"
        return f"{' and '.join(parts)} on {self.samples} {which}"


def measure(expected: Sequence[Output], got: Sequence[Output]) -> Quality:
    """The quality of outputs against the float model's, over all samples."""
    pairs = tuple(zip(expected, got, strict=True))
    each = [_of_one(one, other) for one, other in pairs]
    classes = [quality for quality in each if quality.agreement is not None]
    reconstructed = [q.reconstruction_db for q in each if q.reconstruction_db is not None]
    return Quality(
        each[0].samples,
        min(quality.snr_db for quality in each),
        min(quality.median_db for quality in each),
        min(quality.p5_db for quality in each),
        min(quality.before_db for quality in each),
        min((q.agreement for q in classes if q.agreement is not None), default=None),
        max((q.drop for q in classes if q.drop is not None), default=None),
        min(reconstructed, default=None),
        bool(classes) and all(quality.has_scores for quality in classes),
    )


def _of_one(expected: Output, got: Output) -> Quality:
    total, single = levels(expected.values, got.values)
    before, _ = levels(expected.before, got.before)
    agreement = drop = reconstruction = None
    if expected.has_classes:
        both = zip(expected.values, got.values, strict=True)
        agreement = float(np.mean(np.concatenate([one.argmax(-1) == other.argmax(-1) for one, other in both])))
        drop = expected_drop(expected.values, got.values)
    if expected.reconstructed:
        reconstruction = _reconstruction(expected, got)
    low, middle = (float(np.quantile(single, share)) for share in (0.05, 0.5))
    samples = len(expected.values)
    return Quality(samples, total, middle, low, before, agreement, drop, reconstruction, not expected.squashed)


def levels(expected: Sequence[Array], got: Sequence[Array]) -> tuple[float, Array]:
    """SNR in dB of all samples together and of each; an output that is zero throughout has nothing to lose."""
    signal = np.array([float(np.square(_finite(array)).mean()) if array.size else 0.0 for array in expected])
    noise = np.array([_noise(one, other) for one, other in zip(expected, got, strict=True)])
    if not signal.any():
        return BEST_DB, np.full(len(signal), BEST_DB)
    own = np.maximum(signal, _QUIETEST * signal.mean())
    return float(decibels(np.array(noise.sum() / signal.sum()))), decibels(noise / own)


def _noise(expected: Array, got: Array) -> float:
    """Power of the difference; where both are infinite, as masks are, nothing is lost."""
    if not expected.size:
        return 0.0
    error = np.subtract(expected, got, where=expected != got, out=np.zeros(expected.shape), dtype=np.float64)
    return float(np.where(np.isnan(error), np.finfo(np.float32).max, np.square(error)).mean())


def _finite(array: Array) -> Array:
    return np.where(np.isfinite(array), array, 0.0).astype(np.float64)


def _reconstruction(expected: Output, got: Output) -> float:
    """The spread of the samples' reconstruction errors over the spread of what quantizing adds to them, in dB.

    An addition that is the same for all samples moves a threshold and ranks nothing otherwise.
    """
    before, after = (
        np.array([float(np.square(y - x).mean()) for y, x in zip(each.values, expected.reconstructed, strict=True)])
        for each in (expected, got)
    )
    spread = float(before.var())
    return float(decibels(np.array((after - before).var() / spread))) if spread else BEST_DB
