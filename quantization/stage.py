"""The stages that change numerics on purpose: integers, integer weights, floats of 16 bits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnx_ir as ir

from convertkit.artifact import Array, Artifact
from convertkit.good_enough import LEAST_DB
from convertkit.model_flags import data_lacks
from convertkit.onnx.halves import widen_halves
from convertkit.onnx.load import load_model
from convertkit.onnx.runner import OnnxRunner
from convertkit.onnx.save import save_model
from convertkit.parity.feeds import proof_feeds, with_edges
from convertkit.parity.flags import with_flags
from convertkit.parity.replay import record
from convertkit.profile import QuantProfile
from convertkit.quantization.calibrate.histogram import Statistics
from convertkit.quantization.calibrate.observe import extend, observe
from convertkit.quantization.effect import effect, held_out
from convertkit.quantization.float8 import QuantizeFloat8
from convertkit.quantization.graph.step import LossyStep, is_quantized, of_calibration
from convertkit.quantization.graph.units import is_float
from convertkit.quantization.integers import Integers
from convertkit.quantization.place.complete import complete
from convertkit.quantization.place.full_integer import refuse_left
from convertkit.quantization.prepare.opset import at_least
from convertkit.quantization.prepare.prepare import prepare
from convertkit.quantization.prepare.stored_weights import weights_as_reals
from convertkit.quantization.search.reference import reference_of
from convertkit.quantization.weights.half import store_half
from convertkit.quantization.weights.short import BFLOAT16, FLOAT16, Short, compute_in
from convertkit.quantization.weights_alone import QuantizeWeights
from convertkit.recipe import ExportOptions
from convertkit.stage import LOSSY, BuildContext, Feed, FeedSource, Once, Stage, Tolerance
from convertkit.state import initial_state

_FILE = "quantized.onnx"
_STORED = replace(
    LOSSY,
    reason="the step changes numerics on purpose; only an accuracy gate, --eval with --max-drop, lets less pass",
    snr_db=LEAST_DB,
)
"""Of weights of fewer bits, which need no data that could have told before what they keep."""
_BFLOAT = replace(
    _STORED,
    reason="bfloat16 keeps 8 bits of a value, some 50 dB behind one operator, and layers add their roundings up; "
    "what they leave is judged like that of any lossy step",
)


@dataclass(slots=True)
class QuantizeIntegers(LossyStep):
    """Static integers for weights and activations, placed and calibrated for one target."""

    choices: ExportOptions
    profile: QuantProfile
    calibration: FeedSource | None
    once: Once | None = None

    name = "quantize"

    @property
    def options(self) -> Mapping[str, object]:
        return {
            "profile": self.profile.name,
            "method": self.choices.calib_method,
            "full_integer": self.choices.full_integer,
            **of_calibration(self.calibration),
        }

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        """Write the QDQ model; ``diagnosis`` is set afterwards."""
        model = load_model(source.path)
        if not is_quantized(model):
            if self.calibration is None:
                raise data_lacks(self.choices)
            widen_halves(model)
            weights_as_reals(model)
            state = initial_state(source)
            worker = Integers(model, self.profile, self.choices, self.calibration, state, self.progress, once=self.once)
            model = worker.quantized()
            self.diagnosis = worker.diagnosis()
        else:
            self.diagnosis = self._given(model, initial_state(source))
        return save_model(model, workdir / _FILE, f"{self.name} {self.version}", source.initial_state)

    def _given(self, model: ir.Model, state: Mapping[str, Array]) -> Mapping[str, object]:
        """What is told of a model that came quantized; ``--full-integer`` gives it the pairs that it lacks."""
        lacked: tuple[str, ...] = ()
        if self.choices.full_integer:
            lacked = complete(model, self.profile, self.calibration, state)
            refuse_left(model.graph, self.profile)
        told = effect(model, self.choices.precision, self.profile)
        if not lacked:
            return told
        note = f"the model came quantized but for {len(lacked)} values, which got integers, by the calibration data"
        return {**told, "notes": [f"{note}: {', '.join(lacked[:3])}{', …' if len(lacked) > 3 else ''}"]}


@dataclass(slots=True)
class HalfPrecision(LossyStep):
    """Float16 weights, or float16 or bfloat16 throughout, as the target wants it."""

    profile: QuantProfile
    calibration: FeedSource | None = None
    seed: int = 0
    short: Short = FLOAT16
    tolerance: Tolerance = _STORED

    @property
    def name(self) -> str:
        """``half`` or ``bfloat16``."""
        return self.short.suffix

    @property
    def options(self) -> Mapping[str, object]:
        return {"profile": self.profile.name, "half": self.profile.half, **of_calibration(self.calibration)}

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        """Write the model; ``diagnosis`` names what stays float32."""
        model = at_least(load_model(source.path), self.short.opset)
        if self.profile.half == "compute" and self.profile.written_out is not None:
            self.profile.written_out(model)
        reference = reference_of(model, self.calibration, initial_state(source))
        if self.profile.half == "weights":
            prepare(model)  # a normalisation that a target folds into halves later would make floats of them
            kept = store_half(model)
        else:
            names = [str(value.name) for node in model.graph for value in node.outputs if is_float(value)]
            kept = compute_in(self.short, model, self._ranges(model, names, source), self.profile.lacks)
        quality = None if reference is None else reference.quality(model.clone())
        self.diagnosis = {
            **effect(model, self.short.flag, self.profile),
            "held_out": held_out(quality),
            "float32": list(kept),
            "for_size_only": self.profile.half == "weights",
        }
        return save_model(model, workdir / f"{self.name}.onnx", f"{self.name} {self.version}", source.initial_state)

    def _ranges(self, model: ir.Model, names: Sequence[str], source: Artifact) -> Mapping[str, Statistics]:
        """Extremes over the data, or over generated inputs that the model takes, and over edge inputs made of them."""
        few = proof_feeds(source.inputs, self.calibration, self.seed)
        if self.calibration is None:
            with OnnxRunner(source) as runner:
                few = with_flags(record(self.name, source, runner, few), runner).feeds
        usual: Iterable[Feed] = few if self.calibration is None else self.calibration
        state = initial_state(source)
        tracked = self.progress.track(usual, None, "measuring ranges")
        found = observe(model, names, tracked, state, infinities=True)  # those of a mask, whose nodes stay float32
        extend(
            found, model, with_edges(source.inputs, few).edge_feeds, state
        )  # silence or a loud input must not overflow
        return found


def build(context: BuildContext) -> Stage:
    """The stage that fits the options; it raises ``UsageError`` itself where a model needs data and there is none."""
    options, profile = context.options, context.target.profile(context.options)
    if options.precision in ("fp16", "bf16"):
        kind = (BFLOAT16, _BFLOAT) if options.precision == "bf16" else (FLOAT16, _STORED)
        return HalfPrecision(profile, context.calibration, options.seed, *kind, progress=context.progress)
    if options.precision == "fp8":
        if context.calibration is None:
            raise data_lacks(options)
        return QuantizeFloat8(options, profile, context.calibration, progress=context.progress)
    if profile.weight_only:
        return QuantizeWeights(options, profile, _STORED, context.calibration, progress=context.progress)
    return QuantizeIntegers(options, profile, context.calibration, context.once, progress=context.progress)


_: tuple[type[Stage], ...] = (QuantizeIntegers, QuantizeWeights, HalfPrecision)
