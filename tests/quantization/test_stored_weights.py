"""Weights that a file stores as integers for size alone: ``--int8`` gives what computes with them integers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from ai_edge_litert.interpreter import Interpreter
from onnx import TensorProto, helper, numpy_helper

import convertkit
from convertkit.quantization.prepare.stored_weights import weights_as_reals
from tests.quantization.models import images, small_cnn


def stored(folder: Path) -> Path:
    """The small network, the weights of its convolutions as int8 with a scale for each filter."""
    model = small_cnn()
    weights = {node.input[1] for node in model.graph.node if node.op_type == "Conv"}
    for tensor in [each for each in model.graph.initializer if each.name in weights]:
        real = numpy_helper.to_array(tensor)
        scale = np.abs(real).max(axis=(1, 2, 3)) / 127
        whole = np.round(real / scale[:, None, None, None]).astype(np.int8)
        model.graph.initializer.remove(tensor)
        named = {"q": whole, "s": scale.astype(np.float32), "z": np.zeros(len(scale), np.int8)}
        model.graph.initializer.extend(numpy_helper.from_array(v, f"{tensor.name}_{k}") for k, v in named.items())
        inputs = [f"{tensor.name}_{each}" for each in named]
        model.graph.node.insert(0, helper.make_node("DequantizeLinear", inputs, [tensor.name], axis=0))
    onnx.save(model, folder / "stored.onnx")
    return folder / "stored.onnx"


@pytest.mark.parametrize("full_integer", [False, True])
def test_they_become_integers_that_are_computed_with(tmp_path: Path, full_integer: bool):
    np.savez(tmp_path / "calib.npz", x=images(24))
    result = convertkit.export(
        str(stored(tmp_path)), "tflite", int8=True, full_integer=full_integer, calib=str(tmp_path / "calib.npz"),
        device=("arm64-a76",), output=tmp_path / "out",
    )  # fmt: skip
    details = Interpreter(str(result.artifact.path)).get_tensor_details()
    assert result.passed
    assert sum(each["dtype"] == np.int8 for each in details) > 10
    x = images(6, seed=9)
    wanted = ort.InferenceSession(str(tmp_path / "stored.onnx")).run(None, {"x": x})[0]
    (got,) = result.run({"x": x}).values()
    assert 10 * np.log10(np.square(wanted).sum() / np.square(got - wanted).sum()) > 20


@pytest.mark.parametrize(
    ("scales", "attributes", "kind"),
    [((), {}, np.int8), ((6,), {"axis": 0}, np.uint8), ((10,), {"axis": -1}, np.int8),
     ((6, 3), {"axis": 1, "block_size": 4}, np.int8), ((3, 10), {"axis": 0, "block_size": 2}, np.int8),
     ((2, 10), {"axis": 0, "block_size": 5}, np.int8)],
)  # fmt: skip
def test_reals_are_those_of_onnx_runtime(scales: tuple[int, ...], attributes: dict[str, int], kind: type):
    rng = np.random.default_rng(0)
    held = {"q": rng.integers(0, 100, (6, 10)).astype(kind), "s": rng.random(scales, np.float32) + np.float32(0.1),
            "z": rng.integers(0, 9, scales).astype(kind)}  # fmt: skip
    nodes = [helper.make_node("DequantizeLinear", list(held), ["w"], **attributes),
             helper.make_node("Mul", ["x", "w"], ["y"])]  # fmt: skip
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [6, 10]) for name in "xy"]
    constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in held.items()]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], constants)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    model = ir.from_proto(onnx.shape_inference.infer_shapes(proto))
    weights_as_reals(model)
    assert [node.op_type for node in model.graph] == ["Mul"]
    feed = {"x": np.ones((6, 10), np.float32)}
    one, other = (ort.InferenceSession(each.SerializeToString()).run(None, feed)[0]
                  for each in (proto, ir.to_proto(model)))  # fmt: skip
    np.testing.assert_array_equal(one, other)


def test_floats_of_eight_bits_stay():
    held = {"q": helper.make_tensor("q", TensorProto.FLOAT8E4M3FN, [2], [0.5, 1.75]),
            "s": helper.make_tensor("s", TensorProto.FLOAT, [], [1.0])}  # fmt: skip
    nodes = [helper.make_node("DequantizeLinear", list(held), ["w"]), helper.make_node("Mul", ["x", "w"], ["y"])]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], list(held.values()))
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    model = ir.from_proto(onnx.shape_inference.infer_shapes(proto))
    weights_as_reals(model)
    assert [node.op_type for node in model.graph] == ["DequantizeLinear", "Mul"]
