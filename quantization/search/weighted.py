"""Histograms in which a value counts as much as the model's outputs depend on it at its place.

Where an error is doubled behind a tensor, it counts four times, so that the range with the least error by such a
histogram is near that with the least error at the outputs, as far as errors add up.  What nothing depended on counts
a little all the same: in other data a maximum may choose it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.quantization.calibrate.histogram import BINS, Histogram, Statistics
from convertkit.quantization.graph.replay import open_session, run_all
from convertkit.quantization.graph.work import multiply_adds
from convertkit.quantization.search.influence import influence
from convertkit.stage import Feed

_BUDGET = 1e10
"""Multiply-adds of the model itself that the samples may cost; gradients take some four times as many."""
_SAMPLES = (16, 64)
_ELEMENTS = 5e7
"""Values of one sample, which are held beside their gradients: of larger models nothing is weighed."""
_GIVEN = 1e8
"""Values of the inputs of all samples, which are held."""
_KEPT = 8192
"""Of one tensor and sample."""
_EVEN = 0.05
"""What every value counts, as a share of what one counts in the mean."""
_WHOLE = 2.0**52
"""What the counts of the heaviest tensor add up to: they are whole numbers."""


def affordable_samples(model: ir.Model, feed: Feed) -> int:
    """How many samples like ``feed`` should be given to :func:`weighted`: fewer of large models and of large inputs."""
    work, given = sum(map(multiply_adds, model.graph)), sum(each.size for each in feed.values())
    return int(min(np.clip(_BUDGET / max(work, 1.0), *_SAMPLES), max(_GIVEN // max(given, 1), 1)))


def weighted(
    model: ir.Model, statistics: Mapping[str, Statistics], feeds: Sequence[Feed], state: Mapping[str, Array], seed: int
) -> Mapping[str, Histogram]:
    """Histograms by the names of those values of ``statistics`` whose influence on the outputs is known."""
    copy = model.clone()
    made = {str(value.name): value for node in copy.graph for value in node.outputs}
    names = [name for name in statistics if name in made]
    copy.graph.outputs.extend(made[name] for name in names if not made[name].is_graph_output())
    answers = run_all(open_session(copy), names, feeds, state)
    found: dict[str, _Weights] = {}
    for squares, values in zip(influence(model, names, feeds, state, seed, most_directions=4), answers, strict=True):
        if not squares or sum(each.size for each in values.values()) > _ELEMENTS:
            return {}
        for name, square in squares.items():
            found.setdefault(name, _Weights(statistics[name])).add(values[name], square)
    most = max((each.total for each in found.values()), default=0.0)
    return {name: each.histogram(_WHOLE / most) for name, each in found.items() if each.total > 0}


class _Weights:
    """A histogram while it grows: real numbers in the bins, from the start as wide as the tensor's extremes ask."""

    def __init__(self, statistics: Statistics) -> None:
        ends = [each for each in (-statistics.low, statistics.high) if np.isfinite(each)]
        self._exponent = Histogram.exponent_of(max(ends, default=0.0))
        # By weight, and each value once; the last entry are zeros.
        self._sums = np.zeros((2, BINS + 1))

    @property
    def total(self) -> float:
        """What the weights add up to."""
        return float(self._sums[0].sum())

    def add(self, values: Array, weights: Array) -> None:
        """Count values of any shape, each by its weight; of many evenly spread ones."""
        step = max(1, values.size // _KEPT) | 1
        values, weights = values.ravel()[::step], weights.ravel()[::step] * float(step)
        finite = np.isfinite(values)
        values, weights = values[finite], weights[finite]
        places = np.floor(values * (BINS // 2 / 2.0**self._exponent)) + BINS // 2
        places = np.where(values == 0, BINS, np.clip(places, 0, BINS - 1)).astype(np.int64)
        self._sums += [np.bincount(places, counts, BINS + 1) for counts in (weights, np.ones(values.shape))]

    def histogram(self, factor: float) -> Histogram:
        """The finished one, its counts multiplied by ``factor``."""
        weighed, even = self._sums
        counts = np.rint((weighed + even * (_EVEN * weighed.sum() / even.sum())) * factor).astype(np.int64)
        return Histogram(self._exponent, counts[:-1], int(counts[-1]))
