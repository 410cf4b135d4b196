"""Models that came quantized but for values which one vendor's kernels write as float."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import convertkit
from convertkit.data.feeds import load_feeds
from convertkit.errors import Unsupported
from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.specs import interface
from convertkit.quantization.place.complete import complete
from convertkit.recipe import ExportOptions
from convertkit.targets.qnn.profile import profile
from tests.quantization.models import images, small_cnn

QNN = profile(ExportOptions("m.onnx"))


def completed(model: onnx.ModelProto, data: np.ndarray) -> tuple[tuple[str, ...], onnx.ModelProto]:
    graph = canonicalize(ir.from_proto(model))
    names = complete(graph, QNN, load_feeds(data, interface(graph)[0]), {})
    return names, ir.to_proto(graph)


def outputs(model: onnx.ModelProto, data: np.ndarray) -> np.ndarray:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": data})[0])


def pair(name: str, source: str, scale: float, zero_point: int, dtype: str) -> tuple[list, list]:
    constants = [
        numpy_helper.from_array(np.array(scale, np.float32), f"{name}_s"),
        numpy_helper.from_array(np.array(zero_point, dtype), f"{name}_z"),
    ]
    made = [
        helper.make_node("QuantizeLinear", [source, f"{name}_s", f"{name}_z"], [f"{name}_q"]),
        helper.make_node("DequantizeLinear", [f"{name}_q", f"{name}_s", f"{name}_z"], [name]),
    ]
    return made, constants


def read_by(nodes: list, constants: list) -> onnx.ModelProto:
    """``nodes`` behind ``a``, the integers of ``x``; they give ``y``."""
    first, values = pair("a", "x", 0.02, 120, "uint8")
    shapes = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 6]) for name in "xy"]
    graph = helper.make_graph([*first, *nodes], "g", shapes[:1], shapes[1:], [*values, *constants])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_every_operator_reads_and_writes_integers(quantized):
    given = onnx.load(quantized(small_cnn(), images(24), target="tensorrt").after.path)
    names, made = completed(given, images(24))
    makers = {node.output[0]: node.op_type for node in made.graph.node}
    operators = [node for node in made.graph.node if not node.op_type.endswith("tizeLinear")]
    assert {makers[name] for node in operators for name in node.input if name in makers} <= {"DequantizeLinear", "Conv"}
    stored = {each.name: each.data_type for each in made.graph.initializer}
    assert not [name for node in operators for name in node.input if stored.get(name) == TensorProto.FLOAT]
    assert makers["y"] == "DequantizeLinear"
    assert "y" in names
    data = images(16, seed=5)
    before, after = outputs(given, data), outputs(made, data)
    assert 10 * np.log10((before**2).sum() / ((after - before) ** 2).sum()) > 27  # two layers more are integers


def test_a_layer_that_came_in_float_computes_in_integers():
    """A convolution on the float input, and a product with a float weight and a float bias, around integers."""
    rng = np.random.default_rng(6)
    arrays = {
        "w": rng.normal(size=(5, 3, 3, 3)), "b": rng.normal(size=5), "m": rng.normal(size=(5, 4)),
        "c": rng.normal(size=4),
    }  # fmt: skip
    constants = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in arrays.items()]
    first, values = pair("p", "r", 0.05, -128, "int8")
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["v"]), helper.make_node("Relu", ["v"], ["r"]), *first,
        helper.make_node("ReduceMean", ["p"], ["s"], axes=[2, 3], keepdims=0),
        helper.make_node("MatMul", ["s", "m"], ["d"]), helper.make_node("Add", ["d", "c"], ["y"]),
    ]  # fmt: skip
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 12, 12])]
    ports.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4]))
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], [*constants, *values])
    given = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    names, made = completed(given, images(24))
    assert {"x", "y", *arrays} <= set(names)
    stored = {each.name: each.data_type for each in made.graph.initializer}
    operators = [node for node in made.graph.node if not node.op_type.endswith("tizeLinear")]
    assert not [name for node in operators for name in node.input if stored.get(name) == TensorProto.FLOAT]
    data = images(16, seed=5)
    before, after = outputs(given, data), outputs(made, data)
    assert 10 * np.log10((before**2).sum() / ((after - before) ** 2).sum()) > 20


@pytest.mark.parametrize(("bias", "becomes"), [(20.0, "DequantizeLinear"), (30.0, None)])
def test_a_bias_beyond_int32_stays_float(bias, becomes):
    """In steps of its products, of 2e-8 here; 2 ** 30 of them are 21."""
    rng, (last, values) = np.random.default_rng(6), pair("y", "g", 0.5, 0, "int8")
    constants = [
        numpy_helper.from_array(rng.integers(-127, 128, (6, 6)).astype(np.int8), "m"),
        numpy_helper.from_array(np.float32(1e-6), "m_s"), numpy_helper.from_array(np.full(6, bias, np.float32), "b"),
    ]  # fmt: skip
    nodes = [
        helper.make_node("DequantizeLinear", ["m", "m_s"], ["w"]), helper.make_node("Gemm", ["a", "w", "b"], ["g"]),
        *last,
    ]  # fmt: skip
    names, made = completed(read_by(nodes, [*constants, *values]), rng.normal(size=(24, 6)).astype(np.float32))
    makers = {node.output[0]: node.op_type for node in made.graph.node}
    (gemm,) = [node for node in made.graph.node if node.op_type == "Gemm"]
    assert makers.get(gemm.input[2]) == becomes
    assert ("b" in names) == bool(becomes)


def test_what_lacks_nothing_stays_as_it_is():
    second, constants = pair("y", "r", 0.01, 0, "uint8")
    given = read_by([helper.make_node("Relu", ["a"], ["r"]), *second], constants)
    names, made = completed(given, np.zeros((4, 6), np.float32))
    assert names == ()
    assert [node.op_type for node in made.graph.node].count("QuantizeLinear") == 2


@pytest.mark.parametrize(
    ("nodes", "constants", "scale", "zero_point"),
    [
        ([helper.make_node("Split", ["a"], ["l", "r"], axis=1), helper.make_node("Concat", ["r", "l"], ["y"], axis=1)],
         [], 0.02, 120),
        ([helper.make_node("Sigmoid", ["a"], ["y"])], [], 1 / 256, -128),
    ],
    ids=["moved", "prescribed"],
)  # fmt: skip
def test_parameters_are_those_that_the_kernel_wants(nodes, constants, scale, zero_point):
    _, made = completed(read_by(nodes, constants), np.random.default_rng(3).normal(size=(9, 6)).astype("f"))
    last = made.graph.node[-1]
    arrays = {each.name: numpy_helper.to_array(each) for each in made.graph.initializer}
    assert (arrays[last.input[1]], arrays[last.input[2]]) == (pytest.approx(scale), zero_point)


def test_one_value_is_rounded_once():
    """A pair reads it already, and float beside: both get that pair's integers."""
    second, constants = pair("b", "e", 0.05, 7, "uint8")
    nodes = [helper.make_node("Elu", ["a"], ["e"]), *second, helper.make_node("Add", ["b", "e"], ["y"])]
    names, made = completed(read_by(nodes, constants), np.random.default_rng(4).normal(size=(9, 6)).astype("f"))
    assert names == ("e", "y")
    arrays = {each.name: numpy_helper.to_array(each) for each in made.graph.initializer}
    behind = next(node for node in made.graph.node if node.op_type == "QuantizeLinear" and node.input[0] == "e")
    assert (arrays[behind.input[1]], arrays[behind.input[2]]) == (np.float32(0.05), 7)


LEFT = {
    r"e \(Erf\): .* int8.* has no integer kernel for it": [
        helper.make_node("Erf", ["a"], ["e"], "e"), *pair("b", "e", 0.01, 128, "uint8")[0],
        helper.make_node("Relu", ["b"], ["y"]),
    ],
    r"scaled \(Mul\): it reads step, which has no scale of integers": [
        helper.make_node("DynamicQuantizeLinear", ["a"], ["q", "step", "zero"]),
        helper.make_node("Mul", ["a", "step"], ["y"], "scaled"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("reason", "target"), [*((each, "onnxruntime") for each in LEFT), (next(iter(LEFT)), "openvino")]
)
def test_what_computes_in_float_is_refused_by_name(tmp_path, reason, target):
    """On targets whose runtimes would compute it in float without a word, too."""
    onnx.save(read_by(LEFT[reason], pair("b", "e", 0.01, 128, "uint8")[1]), tmp_path / "model.onnx")
    calibration = {"x": np.random.default_rng(3).normal(size=(24, 6)).astype(np.float32)}
    whole = {"int8": True, "full_integer": True, "calib": calibration}
    with pytest.raises(Unsupported, match=reason):
        convertkit.export(tmp_path / "model.onnx", target, output=tmp_path / "out", **whole)


@pytest.mark.parametrize("target", ["tflite", "onnxruntime"])
def test_convolutions_of_stored_integers_have_their_kernel(quantized, tmp_path, target):
    given = quantized(small_cnn(), images(24), target="tflite", without_costs=True).after.path
    made = convertkit.export(
        given, target, int8=True, full_integer=True, calib={"x": images(24)}, output=tmp_path / "out"
    )
    assert made.passed
