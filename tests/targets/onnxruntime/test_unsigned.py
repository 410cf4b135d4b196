"""Delivered activations are unsigned: the same numbers, and no convolution of a residual network left in float."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import convertkit
from convertkit.onnx.load import load_model
from convertkit.onnx.save import save_model
from convertkit.onnx.unsigned import make_unsigned
from tests.targets.onnxruntime.optimized import executed

RNG = np.random.default_rng(0)
IMAGES = RNG.standard_normal((16, 64, 16, 16)).astype(np.float32)


def residual(path: Path) -> Path:
    """y = conv(r) + r with r = relu(conv(x)): r is read twice."""
    weights = [
        numpy_helper.from_array((RNG.standard_normal((64, 64, 3, 3)) / 24).astype(np.float32), name)
        for name in ("a", "b")
    ]
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["c"], pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "b"], ["d"], pads=[1] * 4),
        helper.make_node("Add", ["d", "r"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 64, 16, 16]) for name in "xy"]
    graph = helper.make_graph(nodes, "residual", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return path


def test_no_operator_of_a_residual_network_stays_float(tmp_path: Path) -> None:
    source = residual(tmp_path / "net.onnx")
    result = convertkit.export(source, "onnxruntime", int8=True, calib={"x": IMAGES}, output=tmp_path / "out")
    kinds = executed(result.artifact.path, tmp_path)
    assert kinds.count("QLinearConv") == 2
    assert "QLinearAdd" in kinds
    assert not {"Conv", "FusedConv", "Add"} & set(kinds)


def qdq(*, ends_in_integers: bool, point: int = -3) -> onnx.ModelProto:
    """x → integers → y, or to the integers themselves as a second output."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "point"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "point"], ["y"]),
    ]
    floats = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [300]) for name in "xy"]
    integers = [helper.make_tensor_value_info("q", onnx.TensorProto.INT8, [300])]
    constants = [numpy_helper.from_array(np.float32(0.25), "scale"), numpy_helper.from_array(np.int8(point), "point")]
    outputs = floats[1:] + (integers if ends_in_integers else [])
    graph = helper.make_graph(nodes, "pair", floats[:1], outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def run(path: Path) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    values = np.linspace(-40, 40, 300, dtype=np.float32)
    return onnxruntime.InferenceSession(path, options).run(["y"], {"x": values})[0]


@pytest.mark.parametrize("point", [-128, -3, 0, 127])
def test_every_value_saturates_and_rounds_alike(tmp_path: Path, point: int) -> None:
    signed, unsigned = tmp_path / "signed.onnx", tmp_path / "unsigned.onnx"
    onnx.save(qdq(ends_in_integers=False, point=point), signed)
    model = load_model(signed)
    assert make_unsigned(model) == 1
    save_model(model, unsigned, "test")
    np.testing.assert_array_equal(run(signed), run(unsigned))


def test_integers_that_leave_the_model_keep_their_dtype(tmp_path: Path) -> None:
    onnx.save(qdq(ends_in_integers=True), tmp_path / "pair.onnx")
    assert make_unsigned(load_model(tmp_path / "pair.onnx")) == 0


@pytest.mark.parametrize("dilations", [[1, 1], None], ids=str)
def test_an_average_between_integers_is_one_that_loads(tmp_path: Path, dilations: list[int] | None) -> None:
    """ONNX Runtime fuses it to an operator without dilations, and then refuses its own graph for them."""
    source = residual(tmp_path / "net.onnx")
    model = onnx.load(source)
    model.graph.node[-1].output[0] = "s"
    attributes = {} if dilations is None else {"dilations": dilations}
    model.graph.node.append(helper.make_node("AveragePool", ["s"], ["p"], kernel_shape=[3, 3], **attributes))
    weight = (RNG.standard_normal((8, 64, 3, 3)) / 24).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "e"))
    model.graph.node.append(helper.make_node("Conv", ["p", "e"], ["y"]))
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 8, 12, 12]))
    del model.opset_import[:]
    model.opset_import.append(helper.make_opsetid("", 20))
    onnx.save(model, source)
    asked = {"int8": True, "full_integer": True, "calib": {"x": IMAGES}, "output": tmp_path / "out"}
    kinds = executed(convertkit.export(source, "onnxruntime", **asked).artifact.path, tmp_path)
    assert kinds.count("QLinearConv") == 3
    assert "QLinearAveragePool" in kinds


def layers(path: Path, opset: int) -> Path:
    """Dense layers of three axes with a bias, and a Softmax, which stays float, of the result turned."""
    weights = [
        numpy_helper.from_array((RNG.standard_normal((256, 256)) / 16).astype(np.float32), "w"),
        numpy_helper.from_array(RNG.standard_normal(256).astype(np.float32), "b"),
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Add", ["m", "b"], ["a"]),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("MatMul", ["r", "w"], ["n"]),
        helper.make_node("Transpose", ["n"], ["t"], perm=[0, 2, 1]),
        helper.make_node("Softmax", ["t"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(*end) for end in (("x", 1, [1, 64, 256]), ("y", 1, [1, 256, 64]))]
    graph = helper.make_graph(nodes, "layers", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10), path)
    return path


@pytest.mark.parametrize("opset", [20, 21, 23])
def test_integers_of_later_opsets_load(tmp_path: Path, opset: int) -> None:
    """ONNX Runtime 1.31 says INT8 of what it makes unsigned where it moves signed integers, from opset 21 on."""
    source, rows = layers(tmp_path / "m.onnx", opset), {"x": RNG.standard_normal((16, 64, 256)).astype(np.float32)}
    made = convertkit.export(source, "onnxruntime", int8=True, calib=rows, output=tmp_path / "out")
    assert "DynamicQuantizeMatMul" in executed(made.artifact.path, tmp_path)
    signed = convertkit.export(source, "tensorrt", int8=True, calib=rows, output=tmp_path / "signed")
    again = convertkit.export(signed.artifact.path, "onnxruntime", output=tmp_path / "again")
    feed = {"x": rows["x"][:1]}
    np.testing.assert_allclose(again.run(feed)["y"], signed.run(feed)["y"], atol=1e-3)
