"""Shares of zeros corrected by what the model loses when all layers are pruned.

What a layer costs when it is pruned alone says little about what it costs among others that are pruned, so each layer's
curve is scaled up or down where trials on samples that no weight was fitted on lose less with it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from convertkit.quantization.pruning.budgets import Curve
from convertkit.quantization.pruning.patterns import Pattern
from convertkit.quantization.pruning.products import Product
from convertkit.quantization.pruning.sparsify import Sparsifier, relative_noise
from convertkit.quantization.search.reference import Reference

_BUDGET = 3e11
"""Multiply-adds that all trials may cost."""
_MOST = 24
_LEAST = 4
"""Fewer trials than this would correct too little to be worth their time."""
_FITTED = 3
"""Of so many samples, all but one are what weights are fitted on in trials."""
_LEAST_SAMPLES = 24
_STEPS = (4.0, 2.0)
"""Factors that are tried, in turn."""
_GAIN = 0.005


def tuned(worker: Sparsifier, curves: Mapping[Product, Curve], wanted: Pattern) -> Mapping[Product, Curve]:
    """The curves, each times a factor, with which the least is lost at the wanted share.

    Where trials cost too much or samples are few, the curves are as they were.
    """
    trials = int(min(_BUDGET / worker.cost, _MOST))
    if trials < _LEAST or len(worker.feeds) < _LEAST_SAMPLES:
        return curves
    search = _Trials(worker, wanted)
    best = search.noise(curves)
    places = sorted(curves, key=lambda product: -product.size)
    directions = dict.fromkeys(places, 1)
    moves = ((product, step) for step in (*_STEPS, *_STEPS[-1:] * trials) for product in places)
    left = trials - 1
    for product, step in moves:
        for sign in (directions[product], -directions[product]):
            if left <= 0:
                return curves
            changed = {**curves, product: curves[product].scaled(step**sign)}
            left, noise = left - 1, search.noise(changed)
            if noise < best * (1 - _GAIN):
                curves, best, directions[product] = changed, noise, sign
                break
    return curves


class _Trials:
    """A model pruned on some samples and judged by others."""

    def __init__(self, worker: Sparsifier, wanted: Pattern) -> None:
        judged = set(range(1, len(worker.feeds), _FITTED))
        feeds = [feed for place, feed in enumerate(worker.feeds) if place not in judged]
        self._worker, self._wanted = worker.on(feeds), wanted
        self._reference = Reference(
            worker.model.clone(), [worker.feeds[place] for place in sorted(judged)], worker.state
        )

    def noise(self, curves: Mapping[Product, Curve]) -> float:
        """Noise over signal at the outputs."""
        model, _ = self._worker.pruned(self._wanted, self._worker.like(curves))
        found = relative_noise(self._reference, model)
        return found if np.isfinite(found) else np.inf
