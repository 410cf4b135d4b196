"""What a recurrent layer costs by the target's tables, and what follows for the layers around it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

from convertkit.onnx.load import load_model
from convertkit.profile import QuantProfile
from convertkit.quantization.graph.units import find_units
from convertkit.quantization.place.costs import unit_cost
from convertkit.quantization.place.precision_assignment import choose_integer
from convertkit.quantization.place.recurrent import recurrent_cost
from convertkit.recipe import ExportOptions
from convertkit.targets.onnxruntime.profile import profile as onnxruntime_profile
from convertkit.targets.tflite.compile import compile_model
from convertkit.targets.tflite.costs.estimate import estimates
from convertkit.targets.tflite.passes import Options
from convertkit.targets.tflite.profile import profile

GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}
HIDDEN, FEATURES, CLASSES = 64, 40, 12
OF_LOOPS = frozenset({"WHILE", "GATHER", "DYNAMIC_UPDATE_SLICE", "CONCATENATION"})
"""Operators of the loop itself, of which a device may have more or fewer turns."""


def network(op: str, steps: int = 50, layout: int = 0, directions: int = 1) -> onnx.ModelProto:
    """A recurrent layer and a dense one that reads each of its steps."""
    rng = np.random.default_rng(0)
    rows = GATES[op] * HIDDEN
    shapes = {"w": (directions, rows, FEATURES), "r": (directions, rows, HIDDEN), "head": (HIDDEN, CLASSES)}
    stored = [numpy_helper.from_array(rng.normal(0, 0.1, s).astype(np.float32), name) for name, s in shapes.items()]
    stored.append(numpy_helper.from_array(np.array([steps, directions, HIDDEN]), "sizes"))
    direction = "bidirectional" if directions == 2 else "forward"
    options = {"hidden_size": HIDDEN, "layout": layout, "direction": direction}
    nodes = [
        helper.make_node(op, ["x", "w", "r"], ["seq"], "layer", **options),
        helper.make_node("Reshape", ["seq", "sizes"], ["rows"], "rows"),
        helper.make_node("MatMul", ["rows", "head"], ["y"], "dense"),
    ]
    read = [1, steps, FEATURES] if layout else [steps, 1, FEATURES]
    infos = [helper.make_tensor_value_info("x", 1, read), helper.make_tensor_value_info("y", 1, None)]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    return onnx.shape_inference.infer_shapes(model)


def cost(model: onnx.ModelProto, rules: QuantProfile) -> float:
    units = find_units(ir.from_proto(model).graph, rules)
    (layer,) = (unit for unit in units if unit.name == "layer")
    integer, real = unit_cost(layer, rules)
    assert integer == real == recurrent_cost(layer.node, rules)
    return real


def options(device: str) -> ExportOptions:
    return ExportOptions("m.onnx", precision="int8", device=(device,))


ARM = profile(options("arm64-a76"))


@pytest.mark.parametrize("device", ["arm64-a55", "arm64-a76", "arm64-i8mm"])
@pytest.mark.parametrize("op", ["GRU", "LSTM", "RNN"])
def test_it_costs_what_the_file_is_estimated_to_take(op: str, device: str, tmp_path: Path) -> None:
    """In float, which the file is compiled in; sums of indices and the dense layer are the rest."""
    onnx.save(network(op), tmp_path / "m.onnx")
    compile_model(load_model(tmp_path / "m.onnx"), Options(device=(device,))).write(tmp_path / "m.tflite")
    nodes = estimates(tmp_path / "m.tflite", [device])[0].nodes
    file_ns = sum(node.ms * 1e6 for node in nodes if node.kind not in OF_LOOPS)
    rules = profile(options(device))
    real = cost(
        network(op), QuantProfile("float", "int8", False, {}, costs=rules.costs, kernel_costs=rules.kernel_costs)
    )
    assert 0.6 * file_ns < real < file_ns


@pytest.mark.parametrize(("device", "op", "saves"), [("arm64-a76", "GRU", 0.2), ("x86", "LSTM", 0.1)])
def test_stored_integers_are_cheaper_where_their_kernels_are(device: str, op: str, saves: float) -> None:
    rules = profile(options(device))
    assert cost(network(op), rules) < (1 - saves) * cost(network(op), replace(rules, recurrent=False))


def test_a_small_layer_behind_many_steps_is_not_the_model() -> None:
    """Its integers save most of its own time, but not a tenth of the whole; float is more exact."""
    rules = replace(ARM, dynamic=frozenset())
    units = find_units(ir.from_proto(network("GRU")).graph, rules)
    alone = tuple(unit for unit in units if unit.name != "layer")
    assert "dense" in {unit.name for unit in choose_integer(alone, rules, insist=False)}
    assert not choose_integer(units, rules, insist=False)


def test_without_tables_of_kernels_nothing_is_told() -> None:
    rules = onnxruntime_profile(ExportOptions("m.onnx", precision="int8"))
    (layer, *_) = find_units(ir.from_proto(network("LSTM")).graph, rules)
    assert recurrent_cost(layer.node, rules) is None


def test_steps_directions_and_layout_count() -> None:
    rules = profile(options("arm64-a76"))
    once = cost(network("LSTM"), rules)
    assert cost(network("LSTM", directions=2), rules) == pytest.approx(2 * once, rel=1e-9)
    assert cost(network("LSTM", layout=1), rules) == pytest.approx(once, rel=1e-9)
    assert cost(network("LSTM", steps=100), rules) == pytest.approx(2 * once, rel=0.01)
