"""Factors of channels that join the weights in front of them, and the clamp behind them, which stays."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper

from tests.targets.tflite.compiled import compiled, numbers

LAYERS = {"Conv": ((2, 3, 6, 6), (5, 3, 1, 1), (5, 1, 1)), "MatMul": ((4, 7), (7, 5), (5,))}
CLAMPS = {"none": [], "relu": [helper.make_node("Relu", ["scaled"], ["y"])]}
CLAMPS["clip"] = [helper.make_node("Clip", ["scaled", "low", "high"], ["y"])]


@pytest.mark.parametrize("clamp", CLAMPS)
@pytest.mark.parametrize("kind", LAYERS)
def test_a_factor_behind_a_layer_leaves_its_clamp(kind: str, clamp: str) -> None:
    size, weight, factor = LAYERS[kind]
    last = "scaled" if CLAMPS[clamp] else "y"
    nodes = [helper.make_node(kind, ["x", "w"], ["made"]), helper.make_node("Mul", ["made", "f"], [last])]
    stored = {"w": numbers(*weight, seed=1) * 4, "f": numbers(*factor, seed=2)}
    stored |= {"low": np.float32(0), "high": np.float32(6)} if clamp == "clip" else {}
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in stored.items()]
    values = [helper.make_tensor_value_info(name, 1, shape) for name, shape in (("x", size), ("y", None))]
    graph = helper.make_graph([*nodes, *CLAMPS[clamp]], "g", values[:1], values[1:], tensors)
    model = compiled(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8))
    model.agree({"x": numbers(*size, seed=3)})
    assert not {"MUL", "RELU", "RELU6"} & set(model.operators)
