"""Integers of weights whose operators stay float, chosen by data as those of ``--w8`` are, once a plan stores any."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.profile import QuantProfile
from convertkit.progress import Progress
from convertkit.quantization.calibrate.split import Part, thinned
from convertkit.quantization.graph.units import Unit
from convertkit.quantization.search.plan import Plan, weighted_units
from convertkit.quantization.search.reference import affordable_samples
from convertkit.quantization.search.trial import Trials
from convertkit.quantization.weights.integers import QuantizedWeight
from convertkit.quantization.weights.neighbours import is_bounded
from convertkit.quantization.weights.patches import has_rows, moments
from convertkit.quantization.weights.tune import affordable, tune_all
from convertkit.quantization.weights.weight_only import is_candidate, nearest

TUNED = (64, 150)
"""Least and most samples that weights are tuned on, by the model's work; held-out ones judge them."""


@dataclass(slots=True)
class StoredWeights:
    """Chooses integers for the weights that a plan stores; each unit's once."""

    model: ir.Model
    profile: QuantProfile
    samples: Part
    state: Mapping[str, Array]
    seed: int
    trials: Trials
    progress: Progress
    _known: dict[str, QuantizedWeight] = field(default_factory=dict)

    def better(self, plan: Plan) -> Plan:
        """The plan with such integers, or itself where they gain nothing on held-out samples."""
        units = [unit for unit in weighted_units(self.model.graph, self.profile) if _is_stored(unit, plan)]
        self._learn([unit for unit in units if unit.name not in self._known])
        integers = {unit.name: self._known[unit.name] for unit in units if unit.name in self._known}
        changed = replace(plan, stored_integers=integers)
        return changed if integers and self.trials.score(changed).beats(self.trials.score(plan)) else plan

    def _learn(self, units: list[Unit]) -> None:
        chosen = affordable(units)
        if not chosen:
            return
        self.progress.status("tuning weights")
        feeds = thinned(self.samples, affordable_samples(self.model, *TUNED))
        found = moments(self.model, chosen, feeds, self.state, np.random.default_rng(self.seed))
        rounded = {unit.name: nearest(unit, self.profile) for unit in chosen}
        free = replace(self.profile, byte_sums=None)
        for unit in chosen:
            bounded = is_bounded(unit, self.profile, integer=False)
            tuned = tune_all((unit,), rounded, found, self.profile if bounded else free)
            self._known |= {name: one.weight for name, one in tuned.items() if isinstance(one.weight, QuantizedWeight)}


def _is_stored(unit: Unit, plan: Plan) -> bool:
    given = unit.name not in plan.integer and (plan.stored or unit.name in plan.dynamic)
    return given and is_candidate(unit) and has_rows(unit)
