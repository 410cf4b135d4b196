"""Whether scales are moved between layers: only where the quantized model measurably gains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.profile import QuantProfile
from convertkit.quantization.calibrate.flat import flat_values
from convertkit.quantization.calibrate.observe import observe
from convertkit.quantization.graph.units import find_units
from convertkit.quantization.place.masks import measurable
from convertkit.quantization.search.plan import Plan, Ranges, weighted_units
from convertkit.quantization.search.trial import Score, Trials
from convertkit.quantization.weights.equalize import equalize, measure
from convertkit.quantization.weights.sites import NORMS, find_sites
from convertkit.stage import Feed

_MEASURED = 8
"""Samples that show how wide each channel is."""
_SCORED = 16
_BETWEEN_LAYERS = "cross-layer equalization"


def equalized(
    model: ir.Model, plan: Plan, profile: QuantProfile, feeds: Sequence[Feed], state: Mapping[str, Array]
) -> tuple[ir.Model, Mapping[str, str]]:
    """``model``, or a copy with scales moved; with the nodes whose outputs were scaled and the technique.

    Behind normalizations and between layers is tried in turn, there once more with rows that count alike; each stays
    if ``plan`` scores better with it.
    """
    # 16 bits resolve the quietest channel as it is.
    if profile.activation == "int16":
        return model, {}
    if not plan.integer:  # then weights alone are stored, if anything is
        plan = replace(plan, stored=True)
    best, score, moved = model, None, dict[str, str]()
    for technique, alike in (("SmoothQuant", False), (_BETWEEN_LAYERS, False), (_BETWEEN_LAYERS, True)):
        copy = best.clone()
        done = _moved(copy, plan, profile, feeds[:_MEASURED], state, norms=technique == "SmoothQuant", alike=alike)
        if not done:
            continue
        scored = feeds[:_SCORED]
        base = score or _score(best, plan, profile, scored, state)
        level = _score(copy, plan, profile, scored, state)
        best, score = (copy, level) if level.beats(base) else (best, base)
        moved.update(dict.fromkeys(done, technique) if best is copy else {})
    return best, moved


def _moved(
    model: ir.Model,
    plan: Plan,
    profile: QuantProfile,
    feeds: Sequence[Feed],
    state: Mapping[str, Array],
    *,
    norms: bool,
    alike: bool,
) -> tuple[str, ...]:
    sites = [site for site in find_sites(model.graph) if (site.producer.op_type in NORMS) == norms]
    units = weighted_units(model.graph, profile) if plan.stored else find_units(model.graph, profile)
    chosen = [unit for unit in units if plan.stored or unit.name in plan.integer]
    integer = frozenset(node for unit in chosen for node in unit.nodes)
    sites = [site for site in sites if integer.intersection(site.readers)]
    if not sites:
        return ()
    seen = measure(model, sites, feeds, state)
    return equalize(model.graph, sites, seen, integer, profile.symmetric, alike=alike)


def _score(
    model: ir.Model, plan: Plan, profile: QuantProfile, feeds: Sequence[Feed], state: Mapping[str, Array]
) -> Score:
    names = measurable(find_units(model.graph, profile))
    ranges = Ranges(observe(model, names, feeds, state), profile, flat_values(model.graph))
    return Trials(model, ranges, feeds, state).score(plan)
