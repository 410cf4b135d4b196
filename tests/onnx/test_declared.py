"""Shapes that a file declares of its outputs, where the operators give others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

import convertkit
from convertkit.onnx.canonical import canonicalize

CASES = {
    "argmax keeps its axis": (helper.make_node("ArgMax", ["x"], ["y"], axis=1), TensorProto.INT64, [None], ["n", 1]),
    "two axes": (helper.make_node("Concat", ["x", "x"], ["y"], axis=1), TensorProto.FLOAT, [None, 3, 1], ["n", 6]),
    "no such attribute": (helper.make_node("Relu", ["x"], ["y"], alpha=2.0), TensorProto.FLOAT, ["n"], ["n"]),
    "a constant says": (helper.make_node("Reshape", ["x", "flat"], ["y"]), TensorProto.FLOAT, [None, 1], [None]),
    "another size": (helper.make_node("Concat", ["x", "x"], ["y"], axis=1), TensorProto.FLOAT, ["n", 3], ["n", 6]),
    "fewer sizes are right": (helper.make_node("Relu", ["x"], ["y"]), TensorProto.FLOAT, ["n", 3], ["n", 3]),
}


def declared(node: onnx.NodeProto, kind: int, shape: list[str | int | None]) -> onnx.ModelProto:
    given, made = helper.make_tensor_value_info("x", 1, ["n", 3]), helper.make_tensor_value_info("y", kind, shape)
    flat = numpy_helper.from_array(np.array([-1]), "flat")
    graph = helper.make_graph([node], "g", [given], [made], [flat])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.mark.parametrize("name", CASES)
def test_the_operator_decides(name: str) -> None:
    node, kind, wrong, right = CASES[name]
    (output,) = canonicalize(ir.from_proto(declared(node, kind, wrong))).graph.outputs
    sizes = [size if isinstance(size, int) else None for size in output.shape or ()]
    assert sizes == [size if isinstance(size, int) else None for size in right]


@pytest.mark.parametrize("target", ["tflite", "onnxruntime"])
@pytest.mark.parametrize("case", ["argmax keeps its axis", "another size"])
def test_such_a_file_is_delivered(tmp_path: Path, target: str, case: str) -> None:
    node, kind, wrong, _ = CASES[case]
    onnx.save(declared(node, kind, wrong), tmp_path / "m.onnx")
    done = convertkit.export(tmp_path / "m.onnx", target=target, output=tmp_path / "out")
    assert done.passed
    (output,) = done.report["interface"]["outputs"]
    assert len(output["shape"]) == 2


@pytest.mark.parametrize("target", ["tflite", "onnxruntime"])
def test_minus_one_is_a_size_that_is_not_known(tmp_path: Path, target: str) -> None:
    """As PaddlePaddle's converter writes it, of inputs and of outputs."""
    model = declared(helper.make_node("Relu", ["x"], ["y"]), TensorProto.FLOAT, [-1, 3])
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    onnx.save(model, tmp_path / "m.onnx")
    done = convertkit.export(tmp_path / "m.onnx", target=target, output=tmp_path / "out")
    assert done.passed
    (given,) = done.report["interface"]["inputs"]
    assert isinstance(given["shape"][0], str)
