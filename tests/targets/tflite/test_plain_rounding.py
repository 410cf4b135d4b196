"""Integers that no kernel knows (16 bits with a zero point) are roundings of floats, and layout goes through them."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from convertkit.targets.tflite.passes import Options
from tests.targets.tflite.compiled import compiled, numbers

FEEDS = [{"x": numbers(2, 3, 6, 5, seed=seed) * np.float32(scale)} for seed, scale in ((0, 1), (1, 30), (2, 0.01))]


def pair(name: str, *, axis: int = 1) -> list[onnx.NodeProto]:
    operands = ["s", "z"]
    return [
        helper.make_node("QuantizeLinear", [name, *operands], [f"{name}q"], axis=axis),
        helper.make_node("DequantizeLinear", [f"{name}q", *operands], [f"{name}d"], axis=axis),
    ]


def model(nodes: list[onnx.NodeProto], kind: str, scale: object, point: object, result: str) -> onnx.ModelProto:
    stored = {"w": numbers(4, 3, 3, 3), "s": np.array(scale, np.float32), "z": np.array(point, kind)}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 6, 5])],
        [helper.make_empty_tensor_value_info(result)],
        [numpy_helper.from_array(value, name) for name, value in stored.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


CONV = [helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1])]
POOL = [helper.make_node("MaxPool", ["cd"], ["y"], kernel_shape=[2, 2])]


@pytest.mark.parametrize(("kind", "point"), [("int16", -300), ("uint16", 40000), ("uint16", 0), ("int16", 32767)])
def test_one_scale(kind: str, point: int):
    case = compiled(model([*CONV, *pair("c"), *POOL], kind, 0.001, point, "y"), Options("nhwc"))
    assert case.operators == {
        "CONV_2D": 1, "DIV": 1, "ROUND": 1, "MAXIMUM": 1, "MINIMUM": 1, "MUL": 1, "MAX_POOL_2D": 1,
    }  # fmt: skip
    for expected, result in case.both(FEEDS):
        # A sum of products that rounds to the neighbour is one step away.
        steps = np.abs(result["y"] - expected["y"]) / 0.001
        assert steps.max() < 1.1
        assert (steps > 0.1).mean() < 0.01


def test_the_rounding_itself_is_exact():
    case = compiled(model(pair("x"), "int16", 0.001, -300, "xd"), Options("nchw"))
    for expected, result in case.both(FEEDS):
        np.testing.assert_array_equal(result["xd"], expected["xd"])


def test_integers_that_are_read_otherwise_stay():
    cast = helper.make_node("Cast", ["xq"], ["i"], to=TensorProto.INT32)
    back = helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT)
    added = helper.make_node("Add", ["f", "xd"], ["y"])
    case = compiled(model([*pair("x"), cast, back, added], "int16", 0.001, -300, "y"))
    case.agree(*FEEDS)


def test_layout_goes_through_a_scale_for_each_channel():
    scale, point = [0.01, 0.02, 0.03, 0.04], [1, -2, 3, 400]
    nodes = [*CONV, *pair("c"), *POOL]
    case = compiled(model(nodes, "int16", scale, point, "y"), Options("nhwc"))
    assert case.operators["TRANSPOSE"] == 0
    for expected, result in case.both(FEEDS):
        assert np.abs(result["y"] - expected["y"]).max() < 0.041
        assert (np.abs(result["y"] - expected["y"]) > 1e-3).mean() < 0.01


def test_products_of_what_is_rounded_do_not_quantize_it_again():
    """A kernel for integer weights would choose integers of its own for the activations."""
    stored = {
        "w": np.random.default_rng(0).integers(-127, 128, (256, 512)).astype(np.int8),
        "ws": np.float32(0.01), "wz": np.int8(0), "s": np.float32(0.0005), "z": np.int16(-300),
    }  # fmt: skip
    nodes = [
        *pair("x"),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"]),
        helper.make_node("MatMul", ["xd", "wd"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [200, 256])],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in stored.items()],
    )
    case = compiled(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))
    assert case.operators["FULLY_CONNECTED"] == 1
    case.agree({"x": numbers(200, 256)}, tolerance=2e-6)
