"""Eight-bit floats (E4M3): weights and activations of products, as TensorRT's explicit quantization takes them.

A scale puts the greatest magnitude that was measured on E4M3's greatest number; what is larger saturates.  Floats keep
their relative error over many octaves, so nothing is gained by clipping, and zero points are 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array, Artifact
from convertkit.onnx.edit import drop_unused
from convertkit.onnx.halves import widen_halves
from convertkit.onnx.load import load_model
from convertkit.onnx.save import save_model
from convertkit.profile import QuantProfile
from convertkit.quantization.calibrate.observe import observe
from convertkit.quantization.calibrate.ranges import Affine
from convertkit.quantization.calibrate.split import split
from convertkit.quantization.effect import effect, held_out
from convertkit.quantization.graph.step import LossyStep, of_calibration
from convertkit.quantization.graph.units import Unit, constant, find_units
from convertkit.quantization.place.write import Writer
from convertkit.quantization.prepare.opset import FLOAT8_OPSET, at_least
from convertkit.quantization.prepare.prepare import prepare
from convertkit.quantization.search.floor import refuse_ruin
from convertkit.quantization.search.reference import reference_of
from convertkit.recipe import ExportOptions
from convertkit.stage import FeedSource
from convertkit.state import initial_state

E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)
GREATEST = float(ml_dtypes.finfo(E4M3).max)
"""448.  Source: OCP 8-bit Floating Point Specification 1.0; ONNX's float8e4m3fn is the same type."""
_LEAST_SCALE = 2.0**-100
"""Scales have to be normal float32 numbers with room for products of two."""


@dataclass(slots=True)
class QuantizeFloat8(LossyStep):
    """Pairs of E4M3 in front of products, their weights per channel; everything else stays float32."""

    choices: ExportOptions
    profile: QuantProfile
    calibration: FeedSource

    name = "float8"

    @property
    def options(self) -> Mapping[str, object]:
        return {"profile": self.profile.name, **of_calibration(self.calibration)}

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        """Write the model; ``diagnosis`` names what stays float32, and why."""
        model = load_model(source.path)
        widen_halves(model)
        model = at_least(model, FLOAT8_OPSET)
        prepare(model)
        state = initial_state(source)
        reference = reference_of(model, self.calibration, state)
        kept = self._written(model, self._greatest(model, state))
        quality = None if reference is None else reference.quality(model.clone())
        refuse_ruin(quality, self.choices)
        told = {"held_out": held_out(quality), "float32": list(kept), "float": dict(kept)}
        self.diagnosis = {**effect(model, "fp8", self.profile), **told}
        return save_model(model, workdir / "float8.onnx", f"{self.name} {self.version}", source.initial_state)

    def _greatest(self, model: ir.Model, state: Mapping[str, Array]) -> Mapping[str, float]:
        """The greatest magnitude of each value that a product reads, over the data that measures."""
        units = find_units(model.graph, self.profile)
        names = list(dict.fromkeys(str(value.name) for unit in units for value in unit.data.values()))
        measured, _ = split(self.calibration)
        found = observe(model, names, self.progress.track(measured, None, "measuring ranges"), state)
        return {name: max(-each.low, each.high) for name, each in found.items()}

    def _written(self, model: ir.Model, greatest: Mapping[str, float]) -> Mapping[str, str]:
        """Write the pairs in place; by name, why a product stays float32."""
        units = [unit for unit in find_units(model.graph, self.profile) if unit.data]
        kept = {unit.name: why for unit in units if (why := _stays_float(unit, greatest))}
        chosen = [unit for unit in units if unit.name not in kept]
        writer = Writer(model.graph, self.profile)
        for unit in chosen:
            _write_weight(unit, writer)
        nodes = {unit.node for unit in chosen}
        for value in dict.fromkeys(value for unit in chosen for value in unit.data.values()):
            scale = max(float(np.float32(greatest[str(value.name)] / GREATEST)), _LEAST_SCALE)
            writer.activation(value, Affine(scale, 0, E4M3.name), nodes, everywhere=False)
        drop_unused(model.graph)
        return kept


def _stays_float(unit: Unit, greatest: Mapping[str, float]) -> str:
    """Why a product cannot be one of E4M3, empty where it can."""
    magnitudes = [greatest[str(value.name)] for value in unit.data.values()]
    if not all(0.0 < each < np.inf for each in magnitudes):
        return "its input is 0 on all of the data, or has no bound"
    if unit.weight is not None and not np.isfinite(constant(unit.weight[1])).all():
        return "its weight is not finite"
    return "" if unit.weight is not None or len(unit.data) == 2 else "it has no second operand of E4M3"


def _write_weight(unit: Unit, writer: Writer) -> None:
    """The unit's weight in E4M3 behind DequantizeLinear, a scale for each channel; biases stay float32."""
    if unit.weight is None or unit.rule is None:
        return
    index, source = unit.weight
    weight, axis = constant(source), unit.rule.weight_axis[index] % constant(source).ndim
    scales = channel_scales(weight, axis)
    spread = scales.reshape([-1 if each == axis else 1 for each in range(weight.ndim)])
    stored = (weight / spread).astype(E4M3)
    made = writer.dequantized(str(source.name), stored, scales, axis, unit.node)
    unit.node.replace_input_with(index, made)


def channel_scales(weight: Array, axis: int) -> Array:
    """For each channel along ``axis`` the float32 that its greatest magnitude is 448 times; 1 where all are 0."""
    others = tuple(each for each in range(weight.ndim) if each != axis)
    greatest = np.abs(weight).max(axis=others)
    scales = np.maximum(greatest / GREATEST, _LEAST_SCALE)
    return np.where(greatest > 0, scales, 1.0).astype(np.float32)
