"""``--low-rank``: large dense layers and 1 × 1 convolutions as two narrower ones, where the cost table gains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array, Artifact
from convertkit.errors import Unsupported
from convertkit.onnx.edit import drop_unused
from convertkit.onnx.load import load_model
from convertkit.onnx.save import save_model
from convertkit.profile import QuantProfile
from convertkit.quantization.calibrate.split import split
from convertkit.quantization.effect import held_out
from convertkit.quantization.graph.sizes import measure_sizes
from convertkit.quantization.graph.step import LossyStep
from convertkit.quantization.graph.units import Unit, find_units
from convertkit.quantization.place.costs import unit_cost
from convertkit.quantization.prepare.prepare import prepare
from convertkit.quantization.pruning.factors import Factors, factorise, factors, is_candidate, kept_rank, ranks
from convertkit.quantization.pruning.joint import fit_jointly
from convertkit.quantization.pruning.patterns import AUTO
from convertkit.quantization.pruning.scores import Product
from convertkit.quantization.pruning.sparsify import relative_noise
from convertkit.quantization.pruning.surgery import PRODUCTS, explicit_biases, importance, some
from convertkit.quantization.search.floor import is_enough
from convertkit.quantization.search.quality import Quality
from convertkit.quantization.search.reference import Reference
from convertkit.quantization.weights.blas import one_thread
from convertkit.quantization.weights.patches import Moments, is_product, moments, weight_rows
from convertkit.recipe import ExportOptions
from convertkit.stage import BuildContext, Feed, FeedSource, Stage
from convertkit.state import initial_state

_BUDGET = 5e10
"""Rows × columns × both together of all layers that are looked at: about a minute of singular vectors."""
_PRICES = (1e-6, 1e3)
"""What the whole time is worth in noise at the outputs: the least and the most that is tried …"""
_ROUNDS = 8
"""… by halving the interval so often."""

Chosen = Mapping[str, int]
"""The rank of each product, by the name of its value; without those that stay whole."""


@dataclass(frozen=True, slots=True)
class _Choice:
    """A product's factors, and what each rank that wins time saves, as a share of the whole model's."""

    found: Factors
    gains: Mapping[int, float]
    scale: float = 1.0

    @property
    def name(self) -> str:
        return str(self.found.product.unit.node.outputs[0].name)

    def noise(self, rank: int) -> float:
        """At the outputs, relative to their power."""
        return self.scale * float(self.found.loss[rank])


@dataclass(slots=True)
class LowRank(LossyStep):
    """Two products in place of one: ranks that keep a share of each one's power, or what the gate allows."""

    wanted: str
    profile: QuantProfile
    calibration: FeedSource | None = None
    choices: ExportOptions = field(kw_only=True)

    name = "low-rank"
    version = "3"

    @property
    def options(self) -> Mapping[str, object]:
        return {"low_rank": self.wanted, "profile": self.profile.name, "calibrated": self.calibration is not None}

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        """Write the model with factors; ``diagnosis`` tells the rank of every layer and the time by the table."""
        model = load_model(source.path)
        prepare(model)
        explicit_biases(model.graph)
        state = initial_state(source)
        measuring, judging = ((), ()) if self.calibration is None else split(self.calibration)
        feeds = list(measuring)
        if feeds:
            measure_sizes(model, feeds[0], state)
        found = self._candidates(model, feeds, state)
        if not found:
            raise Unsupported(
                f"--low-rank {self.wanted}: no dense layer or 1 × 1 convolution is faster as two by the cost table",
                ways_out=("--prune-channels", "--int8"),
            )
        reference = Reference(model.clone(), judging, state) if judging else None
        made, chosen, quality = self._chosen(model, found, feeds, judging, state, reference)
        saved = sum(each.gains[chosen[each.name]] for each in found if each.name in chosen)
        told = f"{len(chosen)} layers became two each"
        self.diagnosis = {
            "factors": [{"layer": name, "rank": rank} for name, rank in chosen.items()],
            "estimated_time": 1 - saved,
            "held_out": held_out(quality),
            "notes": [told if quality is None else f"{told}; kept are {quality.told()}"],
        }
        return save_model(made, workdir / "factors.onnx", f"{self.name} {self.version}", source.initial_state)

    def _candidates(self, model: ir.Model, feeds: Sequence[Feed], state: Mapping[str, Array]) -> list[_Choice]:
        integers = self.choices.quantized
        units = find_units(model.graph, self.profile)
        whole = sum(unit_cost(unit, self.profile)[0 if integers and unit.rule else 1] for unit in units)
        matrices = [unit for unit in find_units(model.graph, PRODUCTS) if is_product(unit) and is_candidate(unit)]
        gains = {unit: ranks(unit, self.profile, integers=integers) for unit in matrices}
        chosen = _affordable([unit for unit in matrices if gains[unit]])
        self.progress.status("measuring layers")
        known = _products(model, chosen, feeds, state, self.choices.seed)
        with one_thread():
            return [
                _Choice(factors(known[unit]), {rank: ns / whole for rank, ns in gains[unit].items()})
                for unit in self.progress.track(chosen, len(chosen), "factorising")
            ]

    def _chosen(
        self, model: ir.Model, found: Sequence[_Choice], feeds: Sequence[Feed], judging: Sequence[Feed],
        state: Mapping[str, Array], reference: Reference | None,
    ) -> tuple[ir.Model, Chosen, Quality | None]:  # fmt: skip
        if self.wanted != AUTO:
            kept = {each.name: kept_rank(each.found, list(each.gains), float(self.wanted)) for each in found}
            enough = {name: rank for name, rank in kept.items() if rank is not None}
            if not enough:
                raise Unsupported(f"--low-rank {self.wanted}: no layer keeps that share of its outputs and wins time")
            return self._fitted(model, found, enough, feeds, judging, state, reference)
        assert reference is not None
        measured = self._measured(model, found, feeds, state)
        low, high = np.log(_PRICES)
        best: tuple[ir.Model, Chosen, Quality | None] | None = None
        last: Quality | None = None
        for _ in range(_ROUNDS):
            chosen = _at(measured, float(np.exp((low + high) / 2)))
            plain = _with_factors(model, measured, chosen)
            last = reference.quality(plain.clone())
            tried: tuple[ir.Model, Chosen, Quality | None] = plain, chosen, last
            if not is_enough(last, self.choices):
                tried = self._fitted(model, measured, chosen, feeds, judging, state, reference)
                last = tried[2] or last
            if is_enough(last, self.choices):
                low, best = (low + high) / 2, tried if chosen else best
            else:
                high = (low + high) / 2
        if best is None:
            told = "" if last is None else f", {last.told()}"
            raise Unsupported(f"--low-rank auto: what wins time costs too much{told}",
                              ways_out=("--max-drop with more points", "--prune-channels auto"))  # fmt: skip
        return best

    def _measured(
        self, model: ir.Model, found: Sequence[_Choice], feeds: Sequence[Feed], state: Mapping[str, Array]
    ) -> list[_Choice]:
        """With what the outputs lose where one product alone has the middle one of its ranks."""
        reference = Reference(model.clone(), some(feeds), state)
        measured = []
        for each in self.progress.track(found, len(found), "measuring layers"):
            rank = sorted(each.gains)[len(each.gains) // 2]
            noise = relative_noise(reference, _with_factors(model, [each], {each.name: rank}))
            scale = noise / max(float(each.found.loss[rank]), 1e-30)
            measured.append(_Choice(each.found, each.gains, scale))
        return measured

    def _fitted(
        self, model: ir.Model, found: Sequence[_Choice], chosen: Chosen, feeds: Sequence[Feed],
        judging: Sequence[Feed], state: Mapping[str, Array], reference: Reference | None,
    ) -> tuple[ir.Model, Chosen, Quality | None]:  # fmt: skip
        made = _with_factors(model, found, chosen)
        if reference is None:
            return made, chosen, None
        before, fitted = reference.quality(made.clone()), made.clone()
        if not chosen or not fit_jointly(model, fitted, feeds, judging, state, self.choices.seed, self.progress):
            return made, chosen, before
        after = reference.quality(fitted.clone())
        return (fitted, chosen, after) if after.before_db > before.before_db else (made, chosen, before)


def _affordable(units: Sequence[Unit]) -> list[Unit]:
    """Those of most weights first, as far as the budget goes; in graph order."""
    chosen, spent = set(), 0.0
    for unit in sorted(units, key=lambda unit: -weight_rows(unit).size):
        _, rows, columns = weight_rows(unit).shape
        spent += rows * columns * (rows + columns)
        if spent <= _BUDGET:
            chosen.add(unit)
    return [unit for unit in units if unit in chosen]


def _products(
    model: ir.Model, units: Sequence[Unit], feeds: Sequence[Feed], state: Mapping[str, Array], seed: int
) -> dict[Unit, Product]:
    """With the moments of their inputs; without data all inputs count alike."""
    if not feeds or not units:
        plain = {unit: weight_rows(unit).shape[2] for unit in units}
        return {
            unit: Product(unit, Moments(np.eye(size, dtype=np.float32)[None], np.zeros((1, size), np.float32)))
            for unit, size in plain.items()
        }
    found = moments(model, units, feeds, state, np.random.default_rng(seed))
    counts = importance(model, units, some(feeds), state, seed)
    return {unit: Product(unit, found[unit.name], counts.get(str(unit.node.outputs[0].name))) for unit in units}


def _at(found: Sequence[_Choice], price: float) -> Chosen:
    """The best rank of each product where all the time is worth ``price`` of noise; without those that stay."""
    chosen = {}
    for each in found:
        worth = {rank: each.noise(rank) - price * gain for rank, gain in each.gains.items()}
        rank = min(worth, key=lambda rank: worth[rank])
        if worth[rank] < 0:
            chosen[each.name] = rank
    return chosen


def _with_factors(model: ir.Model, found: Sequence[_Choice], chosen: Chosen) -> ir.Model:
    copy = model.clone()
    nodes = {str(node.outputs[0].name): node for node in copy.graph}
    for each in found:
        if each.name in chosen:
            factorise(copy.graph, nodes[each.name], each.found, chosen[each.name])
    drop_unused(copy.graph)
    return copy


def build(context: BuildContext) -> Stage:
    """The stage for ``--low-rank``."""
    options = context.options
    assert options.low_rank is not None
    profile = context.target.profile(options)
    return LowRank(options.low_rank, profile, context.calibration, choices=options, progress=context.progress)


_: type[Stage] = LowRank
