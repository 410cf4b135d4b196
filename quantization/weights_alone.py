"""The stage of ``--w8`` and ``--w4``: integers for weights, activations stay float."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array, Artifact
from convertkit.onnx.halves import widen_halves
from convertkit.onnx.load import load_model
from convertkit.onnx.save import save_model
from convertkit.profile import QuantProfile
from convertkit.quantization.calibrate.split import split, thinned
from convertkit.quantization.effect import effect, held_out
from convertkit.quantization.graph.step import LossyStep, is_quantized, of_calibration
from convertkit.quantization.graph.units import Unit, find_units
from convertkit.quantization.place.estimates import described
from convertkit.quantization.place.narrow import is_for_size_only
from convertkit.quantization.prepare.opset import INT4_OPSET, at_least
from convertkit.quantization.prepare.prepare import prepare
from convertkit.quantization.report import layers
from convertkit.quantization.search.equalized import equalized_weights, stored_score
from convertkit.quantization.search.floor import refuse_ruin
from convertkit.quantization.search.influence import influence
from convertkit.quantization.search.reference import Reference, affordable_samples, reference_of, weight_bytes
from convertkit.quantization.search.stored import TUNED
from convertkit.quantization.search.weights import Chosen, WeightSearch, first_wide, told
from convertkit.quantization.weights.patches import has_rows, moments
from convertkit.quantization.weights.tune import Tuned, affordable, tune_all
from convertkit.quantization.weights.weight_only import is_candidate, nearest
from convertkit.recipe import ExportOptions
from convertkit.stage import FeedSource, Tolerance
from convertkit.state import initial_state


@dataclass(frozen=True, slots=True)
class _Made:
    """A float model, the integers that its weights get, and the names of nodes whose channels were scaled."""

    model: ir.Model
    tuned: Mapping[str, Tuned]
    search: WeightSearch
    chosen: Chosen
    moved: Mapping[str, str]

    def store(self, model: ir.Model) -> None:
        """Give a copy of the model its integers, in place."""
        self.search.apply(model, self.chosen.widths)

    def bytes(self) -> int:
        """Of all constants of what is made."""
        copy = self.model.clone()
        self.store(copy)
        return weight_bytes(copy)


@dataclass(slots=True)
class QuantizeWeights(LossyStep):
    """Integer weights, float activations; better ones where there is calibration data."""

    choices: ExportOptions
    profile: QuantProfile
    tolerance: Tolerance
    calibration: FeedSource | None = None

    name = "quantize-weights"
    version = "2"

    @property
    def options(self) -> Mapping[str, object]:
        return {"profile": self.profile.name, **of_calibration(self.calibration)}

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        """Write the model with weights behind DequantizeLinear."""
        model = load_model(source.path)
        if is_quantized(model):
            self.diagnosis = effect(model, self.choices.precision, self.profile)
        else:
            widen_halves(model)
            if self.profile.weight == "int4":
                model = at_least(model, INT4_OPSET)
            if self.profile.written_out is not None:
                self.profile.written_out(model)
            prepare(model)
            made = self._best(model, initial_state(source))
            if self.choices.recover is None:  # else what training leaves is judged
                refuse_ruin(made.chosen.quality, self.choices)
            model = made.model
            units, chosen = find_units(model.graph, self.profile), made.chosen
            size_only = chosen.widths.others and is_for_size_only(units, self.profile, chosen.time_share)
            made.store(model)
            self.diagnosis = {**self._told(model, made), "for_size_only": size_only}
        return save_model(model, workdir / "quantized.onnx", f"{self.name} {self.version}", source.initial_state)

    def _best(self, model: ir.Model, state: Mapping[str, Array]) -> _Made:
        """With scales moved between layers where that keeps more in no more bytes, else as it is."""
        reference = reference_of(model, self.calibration, state)
        made = self._made(model, reference, state, {})
        if reference is None or self.calibration is None:
            return made
        self.progress.status("equalizing channels")
        plain = WeightSearch(model, self.profile, {}, self.choices)
        feeds = split(self.calibration)[1][: reference.samples]
        scaled, moved = equalized_weights(model, self.profile, feeds, state, partial(plain.apply, widths=plain.start))
        if not moved:
            return made
        other = self._made(scaled, reference, state, moved)
        return other if _is_better(other, made, reference) else made

    def _made(
        self, model: ir.Model, reference: Reference | None, state: Mapping[str, Array], moved: Mapping[str, str]
    ) -> _Made:
        units = find_units(model.graph, self.profile)
        wide = first_wide(model.graph, units, self.profile, size_first=self.choices.size_first)
        tuned = self._tuned(model, [unit for unit in units if unit.name not in wide], state)
        search = WeightSearch(model, self.profile, tuned, self.choices)
        return _Made(model, tuned, search, search.run(reference), moved)

    def _told(self, model: ir.Model, made: _Made) -> Mapping[str, object]:
        chosen, given = made.chosen, self.calibration
        quality = chosen.quality
        seen = quality is not None and given is not None and quality.samples == len(given)
        return {
            **effect(model, self.choices.precision, self.profile),
            "held_out": held_out(quality, is_all=seen),
            "rungs": list(chosen.rungs),
            "time_share": chosen.time_share,
            "layers": layers(made.tuned),
            "equalized": dict(made.moved),
            "estimated": described(made.search.estimates(chosen.widths)),
            "notes": told(chosen, f"--{self.choices.precision}"),
        }

    def _tuned(self, model: ir.Model, units: Sequence[Unit], state: Mapping[str, Array]) -> Mapping[str, Tuned]:
        """Weights corrected on the data: 5 to 12 dB at 4 bits, up to 1.5 dB at 8 where inputs are correlated."""
        chosen = affordable([unit for unit in units if is_candidate(unit) and has_rows(unit)])
        if self.calibration is None or not chosen:
            return {}
        self.progress.status("tuning weights")
        feeds = thinned(split(self.calibration)[0], affordable_samples(model, *TUNED))
        samples, seed = tuple(feeds), self.choices.seed
        outputs = [str(unit.node.outputs[0].name) for unit in chosen]
        counts = influence(model, outputs, samples, state, seed)
        found = moments(model, chosen, samples, state, np.random.default_rng(seed), counts)
        rounded = {unit.name: nearest(unit, self.profile) for unit in chosen}
        return tune_all(chosen, rounded, found, self.profile)


def _is_better(other: _Made, made: _Made, reference: Reference) -> bool:
    """Whether ``other`` has no more bytes and keeps more, or is enough in fewer."""
    one, two = other.bytes(), made.bytes()
    if one != two:
        return one < two and other.chosen.quality is not None and other.chosen.quality.is_good
    scores = [stored_score(reference, each.store, each.model) for each in (other, made)]
    return scores[0].beats(scores[1])
