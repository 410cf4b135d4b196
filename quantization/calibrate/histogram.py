"""Bounded statistics of a tensor over any number of samples.

The histogram is symmetric around zero and its range is a power of two: where a value exceeds it,
the range doubles and neighbouring bins merge, exactly.  So one pass over the data is enough, memory
does not depend on how much data there is, and histograms of several tensors can be added.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from convertkit.artifact import Array

BINS = 8192
_HALF = BINS // 2
_LEAST_EXPONENT, _GREATEST_EXPONENT = -100, 126
_SIGN_BIT = 31
_MEMORY = 0.99
"""Share of the past that a moving average keeps per sample; the first hundred weigh alike."""


@dataclass(slots=True)
class Histogram:
    """Counts of values in ``(-2**exponent, 2**exponent)``; exact zeros are counted apart.

    They are apart because a quantized zero is exact, whatever the scale.
    """

    exponent: int = _LEAST_EXPONENT
    counts: Array = field(default_factory=lambda: np.zeros(BINS, np.int64))
    zeros: int = 0

    def add(self, values: Array, weight: int = 1) -> None:
        """Count finite float32 values of any shape, each of them ``weight`` times."""
        values = values.ravel() + np.float32(0)  # no negative zeros: the sign is read from its bit
        magnitude = max(-float(values.min(initial=0)), float(values.max(initial=0)))
        zeros = values.size - int(np.count_nonzero(values != 0))
        self.zeros += weight * zeros
        if zeros == values.size:
            return
        self._reach(magnitude)
        signs = values.view(np.int32) >> _SIGN_BIT
        values *= np.float32(_HALF / 2.0**self.exponent)
        # Truncation goes towards zero: the bins below zero start at -1.
        places = values.astype(np.int32)
        places += signs
        places += _HALF
        if magnitude >= 2.0**self.exponent:
            np.clip(places, 0, BINS - 1, out=places)
        counts = np.bincount(places, minlength=BINS)
        counts[_HALF] -= zeros
        self.counts += weight * counts

    def merge(self, other: Histogram) -> None:
        """Add another tensor's counts."""
        exponent = max(self.exponent, other.exponent)
        self._widen(exponent)
        self.counts = self.counts + _widened(other.counts, exponent - other.exponent)
        self.zeros += other.zeros

    @property
    def centres(self) -> Array:
        """The middle of each bin, float64."""
        return (np.arange(BINS) - _HALF + 0.5) * (2.0**self.exponent / _HALF)

    @property
    def total(self) -> int:
        return int(self.counts.sum()) + self.zeros

    @staticmethod
    def exponent_of(magnitude: float) -> int:
        """That of a histogram which holds values up to ``magnitude``."""
        # Strictly below the power of two: the edge itself belongs to the next bin, as it does after widening.
        return int(np.clip(np.frexp(magnitude)[1], _LEAST_EXPONENT, _GREATEST_EXPONENT))

    def _reach(self, magnitude: float) -> None:
        exponent = self.exponent_of(magnitude)
        if exponent > self.exponent:
            self._widen(exponent)

    def _widen(self, exponent: int) -> None:
        if not self.counts.any():
            self.exponent = max(exponent, self.exponent)
            return
        self.counts = _widened(self.counts, exponent - self.exponent)
        self.exponent = max(exponent, self.exponent)


def _widened(counts: Array, doublings: int) -> Array:
    for _ in range(min(doublings, BINS.bit_length())):
        pairs = counts.reshape(-1, 2).sum(axis=1)
        counts = np.pad(pairs, (_HALF // 2, _HALF // 2))
    return counts


@dataclass(slots=True)
class Statistics:
    """What calibration remembers of one tensor."""

    low: float = np.inf
    high: float = -np.inf
    mean_low: float = 0.0
    mean_high: float = 0.0
    samples: int = 0
    histogram: Histogram = field(default_factory=Histogram)

    def add(self, low: float, high: float, values: Array) -> None:
        """Take one sample: its exact extremes, and all or a part of its values."""
        self.extremes(low, high)
        self.histogram.add(values)

    def extremes(self, low: float, high: float) -> None:
        """Take one sample's exact extremes; its values may follow later, with those of other samples."""
        self.low, self.high = min(self.low, low), max(self.high, high)
        keep = min(_MEMORY, self.samples / (self.samples + 1))
        self.mean_low = keep * self.mean_low + (1 - keep) * low
        self.mean_high = keep * self.mean_high + (1 - keep) * high
        self.samples += 1

    def merge(self, other: Statistics) -> None:
        """Take another tensor's statistics, where both share one range."""
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        if other.samples:
            self.mean_low, self.mean_high = min(self.mean_low, other.mean_low), max(self.mean_high, other.mean_high)
        self.samples = max(self.samples, other.samples)
        self.histogram.merge(other.histogram)


def merge_samples(found: Mapping[str, Statistics], more: Mapping[str, Statistics]) -> None:
    """Add what further samples tell of the same tensors, by name.

    Tensors that hold the same numbers share one object, which takes the samples once.
    """
    pairs = {id(found[name]): (found[name], seen) for name, seen in more.items()}
    for statistics, seen in pairs.values():
        statistics.merge(seen)
