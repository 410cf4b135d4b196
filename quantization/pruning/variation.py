"""Samples that never were: to each is added what samples differ by, so that few of them give a model more to answer.

A random sum of the deviations of all samples from their mean has the covariance of the samples: what rises together
still does, and what is the same in all of them stays.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from convertkit.artifact import Array

_DEVIATIONS = 256
"""Samples whose deviations are summed up, evenly spread over all."""


@dataclass(frozen=True, slots=True)
class Variation:
    """How samples of one input differ, and the range of each value.

    ``deviations`` (samples, values) are divided by the root of their number.
    """

    deviations: Array
    low: Array
    high: Array

    def __call__(self, batch: Array, weights: Array) -> Array:
        """``batch`` with sums of deviations by ``weights`` (samples, deviations), of variance 1 where all is added.

        No value leaves the range that it has in the samples, unless it was outside before.
        """
        added = np.matmul(weights, self.deviations).reshape(batch.shape)
        low, high = np.minimum(self.low, batch), np.maximum(self.high, batch)
        return np.asarray(np.clip(batch + added, low, high).astype(batch.dtype))


def variation(samples: Array) -> Variation:
    """Of the ``samples`` (samples, …) of one float input."""
    chosen = samples[np.linspace(0, len(samples) - 1, min(len(samples), _DEVIATIONS)).astype(int)].astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        deviations = ((chosen - chosen.mean(axis=0)) / np.sqrt(np.float32(len(chosen)))).reshape(len(chosen), -1)
    deviations[:, ~np.isfinite(deviations).all(axis=0)] = 0.0  # a mask of the least numbers, say
    return Variation(deviations, samples.min(axis=0), samples.max(axis=0))
