"""Whether scales are moved between layers: only where the quantized model measurably gains."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.data.held_out import spread
from convertkit.profile import QuantProfile
from convertkit.quantization.calibrate.flat import flat_values
from convertkit.quantization.calibrate.observe import observe
from convertkit.quantization.calibrate.split import Part, thinned
from convertkit.quantization.graph.units import find_units
from convertkit.quantization.place.masks import marking_units, measurable
from convertkit.quantization.search.plan import Plan, Ranges, Traits, weighted_units
from convertkit.quantization.search.reference import Reference, affordable_samples
from convertkit.quantization.search.trial import Score, Trials, compare
from convertkit.quantization.weights.equalize import equalize, measure
from convertkit.quantization.weights.sites import NORMS, find_sites
from convertkit.quantization.weights.weight_only import is_candidate
from convertkit.stage import Feed

_SAMPLES = (8, 64)
"""The fewest and the most that show how wide channels and values are, and that judge."""
_BETWEEN_LAYERS = "cross-layer equalization"


Readers = Callable[[ir.Graph], frozenset[ir.Node]]
"""The nodes of a graph whose numbers are rounded."""
Judge = Callable[[ir.Model], Score]
"""What is kept of a float model once it is quantized; the model is not changed."""


def equalized(
    model: ir.Model,
    plan: Plan,
    profile: QuantProfile,
    measured: Part,
    held_out: Sequence[Feed],
    state: Mapping[str, Array],
) -> tuple[ir.Model, Mapping[str, str]]:
    """``model``, or a copy with scales moved; with the nodes whose outputs were scaled and the technique.

    Behind normalizations and between layers is tried in turn, there once more with rows that count alike; each stays
    if ``plan`` scores better with it on held-out samples, which neither channels nor ranges were measured on: a channel
    that fills its range on these is cut in others.
    """
    # 16 bits resolve the quietest channel as it is.
    if profile.activation == "int16":
        return model, {}
    if not plan.integer:  # then weights alone are stored, if anything is
        plan = replace(plan, stored=True)
    most = affordable_samples(model, *_SAMPLES)
    feeds = tuple(thinned(measured, most))
    judging = tuple(held_out[place] for place in spread(len(held_out), most))
    judge = _Judge(plan, profile, feeds, judging, state).score
    worker = _Equalizer(partial(_rounded, plan=plan, profile=profile), judge, feeds, state, alone=not plan.integer)
    return worker.run(model, profile.symmetric)


def equalized_weights(
    model: ir.Model,
    profile: QuantProfile,
    feeds: Sequence[Feed],
    state: Mapping[str, Array],
    store: Callable[[ir.Model], None],
) -> tuple[ir.Model, Mapping[str, str]]:
    """The same where weights alone become integers, which ``store`` does in place.

    ``feeds`` measure channels and judge: where no activation is rounded, no range is cut in other samples.
    """
    feeds = feeds[: affordable_samples(model, *_SAMPLES)]
    judge = partial(stored_score, Reference(model.clone(), feeds, state), store)
    worker = _Equalizer(partial(_stored, profile=profile), judge, feeds, state, alone=True)
    return worker.run(model, profile.symmetric)


def stored_score(reference: Reference, store: Callable[[ir.Model], None], model: ir.Model) -> Score:
    """What a copy of ``model`` keeps of the reference's answers once ``store`` has changed it."""
    copy = model.clone()
    store(copy)
    return compare(reference.outputs, reference.answers(copy))


@dataclass(frozen=True, slots=True)
class _Equalizer:
    """Moves scales in front of what is rounded, as long as the judge finds that it gains.

    ``alone``: activations are not rounded.
    """

    readers: Readers
    judge: Judge
    feeds: Sequence[Feed]
    state: Mapping[str, Array]
    alone: bool = False

    def run(self, model: ir.Model, symmetric: bool) -> tuple[ir.Model, Mapping[str, str]]:
        """The model or a copy with scales moved, and the technique by the names of the producers."""
        best, score, moved = model, None, dict[str, str]()
        for technique, alike in (("SmoothQuant", False), (_BETWEEN_LAYERS, False), (_BETWEEN_LAYERS, True)):
            copy = best.clone()
            done = self._moved(copy, symmetric, norms=technique == "SmoothQuant", alike=alike)
            if not done:
                continue
            base, level = score or self.judge(best), self.judge(copy)
            best, score = (copy, level) if level.beats(base) else (best, base)
            moved.update(dict.fromkeys(done, technique) if best is copy else {})
        return best, moved

    def _moved(self, model: ir.Model, symmetric: bool, *, norms: bool, alike: bool) -> tuple[str, ...]:
        integer = self.readers(model.graph)
        sites = [site for site in find_sites(model.graph) if (site.producer.op_type in NORMS) == norms]
        sites = [site for site in sites if integer.intersection(site.readers)]
        if not sites:
            return ()
        seen = measure(model, sites, self.feeds, self.state)
        return equalize(model.graph, sites, seen, integer, symmetric, alike=alike, alone=self.alone)


def _rounded(graph: ir.Graph, plan: Plan, profile: QuantProfile) -> frozenset[ir.Node]:
    """The nodes that compute in integers by the plan, or whose weights it stores as integers."""
    units = weighted_units(graph, profile) if plan.stored else find_units(graph, profile)
    chosen = [unit for unit in units if plan.stored or unit.name in plan.integer]
    return frozenset(node for unit in chosen for node in unit.nodes)


def _stored(graph: ir.Graph, profile: QuantProfile) -> frozenset[ir.Node]:
    return frozenset(node for unit in find_units(graph, profile) if is_candidate(unit) for node in unit.nodes)


@dataclass(frozen=True, slots=True)
class _Judge:
    """What ``plan`` keeps of a float model on held-out samples, with ranges of ``measured`` ones."""

    plan: Plan
    profile: QuantProfile
    measured: Sequence[Feed]
    held_out: Sequence[Feed]
    state: Mapping[str, Array]

    def score(self, model: ir.Model) -> Score:
        units = find_units(model.graph, self.profile)
        seen = observe(model, measurable(units), self.measured, self.state, infinities=True)
        plan = replace(self.plan, integer=self.plan.integer - marking_units(units, seen))
        ranges = Ranges(seen, self.profile, Traits(flat_values(model.graph)))
        return Trials(model, ranges, self.held_out, self.state).score(plan)
