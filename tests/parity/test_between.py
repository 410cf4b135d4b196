"""Outputs that saturate on everything that is drawn are verified between two inputs, where they do not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import convertkit
from convertkit.errors import NotProven
from tests.onnx_models import write

NODE = helper.make_node
TABLE = np.random.default_rng(0).standard_normal((50, 8)).astype(np.float32) * 40


def of_ids(folder: Path) -> Path:
    """``sigmoid`` of the sum of some rows' numbers, which is far from 0."""
    nodes = [
        NODE("Gather", ["t", "ids"], ["g"]),
        NODE("ReduceSum", ["g", "axes"], ["s"]),
        NODE("Sigmoid", ["s"], ["y"]),
    ]
    constants = {"t": TABLE, "axes": np.array([1, 2])}
    return _written(folder, nodes, "ids", TensorProto.INT64, ["N", 12], constants)


def of_floats(folder: Path, scale: float = 1e4) -> Path:
    """``softmax`` of scores that are far apart, for zeros, too."""
    nodes = [NODE("MatMul", ["x", "w"], ["m"]), NODE("Add", ["m", "b"], ["s"]), NODE("Softmax", ["s"], ["y"])]
    constants = {"w": TABLE[:12, :4] * scale / 40, "b": np.float32([1e4, 0, 0, 0])}
    return _written(folder, nodes, "x", TensorProto.FLOAT, ["N", 12], constants)


def always_one(folder: Path) -> Path:
    """``softmax`` that chooses the same class whatever comes in."""
    return of_floats(folder, 1.0)


def _written(folder, nodes, name, kind, shape, constants) -> Path:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, kind, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, key) for key, value in constants.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return write(folder, onnx.shape_inference.infer_shapes(made))


@pytest.mark.parametrize("model", [of_ids, of_floats])
def test_what_saturates_is_verified_between_two_inputs(model, tmp_path: Path):
    made = convertkit.export(model(tmp_path), output=tmp_path / "out")
    assert made.passed
    edges = made.report["steps"][0]["parity"]["versus_source"]["edges"]
    assert [each for each in edges if each.startswith("between inputs")]


def test_what_never_changes_stays_unverified(tmp_path: Path):
    with pytest.raises(NotProven, match=r'"y" is (saturated|constant)'):
        convertkit.export(always_one(tmp_path), output=tmp_path / "out")
