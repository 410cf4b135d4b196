"""Tables that are read by number."""

from __future__ import annotations

import numpy as np
from onnx import helper, numpy_helper

from tests.targets.tflite.compiled import compiled, numbers


def test_several_tables_at_the_same_indices_look_at_the_sign_once() -> None:
    tables = {name: numbers(rows, 4, seed=seed) for seed, (name, rows) in enumerate({"a": 9, "b": 9, "c": 7}.items())}
    nodes = [helper.make_node("Gather", [name, "i"], [f"r{name}"]) for name in tables]
    nodes.append(helper.make_node("Concat", ["ra", "rb", "rc"], ["y"], axis=-1))
    stored = [numpy_helper.from_array(value, name) for name, value in tables.items()]
    indices, rows = helper.make_tensor_value_info("i", 7, ["n"]), helper.make_tensor_value_info("y", 1, ["n", 12])
    graph = helper.make_graph(nodes, "g", [indices], [rows], stored)
    model = compiled(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))
    model.agree({"i": np.array([-7, 0, 6])}, {"i": np.array([5, -1])})
    found = model.operators
    assert [found[kind] for kind in ("CAST", "LESS", "ADD", "SELECT_V2", "GATHER")] == [1, 1, 2, 2, 3]
