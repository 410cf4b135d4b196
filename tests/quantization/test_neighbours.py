"""Corrected weights stay within the sums that x86 without VNNI takes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir
from onnx import helper

from convertkit.onnx.byte_sums import MOST, greatest_sums
from convertkit.onnx.canonical import canonicalize
from convertkit.quantization.graph.units import Unit, find_units
from convertkit.quantization.place.write import default_weight
from convertkit.quantization.weights.patches import Moments, weight_rows
from convertkit.quantization.weights.tune import Weight, tune
from convertkit.recipe import ExportOptions
from convertkit.targets.onnxruntime.profile import profile
from tests.quantization.models import model_of

RULES = profile(ExportOptions("model.onnx", precision="int8"))


def sums(unit: Unit, weight: Weight) -> np.ndarray:
    return greatest_sums(weight_rows(unit, weight.integers).astype(int), 1)


def test_corrections_do_not_leave_the_bound() -> None:
    """Held to weights whose scales leave no room: where they do, only a rare pair of corrections goes too far."""
    rng = np.random.default_rng(0)
    x = rng.normal(0, 1, (400, 8)) @ rng.normal(0, 1, (8, 64)) + rng.normal(0, 0.1, (400, 64))
    weights = {"w": rng.normal(0, 1, (64, 48)).astype("f4")}
    model = model_of([helper.make_node("MatMul", ["x", "w"], ["y"], "fc")], weights, {"x": ["N", 64]}, {"y": ["N", 48]})
    (unit,) = find_units(canonicalize(ir.from_proto(model)).graph, RULES)
    moments = Moments((x.T @ x / len(x))[None], x.mean(axis=0)[None])
    assert sums(unit, default_weight(unit, RULES, 0.02)).max() in (MOST - 1, MOST)
    full = replace(RULES, byte_sums=None)
    nearest = default_weight(unit, full, 0.02)
    assert sums(unit, tune(unit, nearest, moments, full).weight).max() > MOST
    assert sums(unit, tune(unit, nearest, moments, RULES).weight).max() == MOST
