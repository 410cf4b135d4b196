"""What stays float beside integers is stored as float16, where a kernel takes it so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter
from onnx import helper

import convertkit
from convertkit.quantization.weights.left_float import store_what_is_float
from tests.quantization.models import model_of

_ROWS, _COLUMNS = 20, 24


def tables(first: np.ndarray, second: np.ndarray) -> ir.Model:
    """x + first + second, a dense layer behind them."""
    nodes = [
        helper.make_node("Add", ["x", "first"], ["a"], "add_first"),
        helper.make_node("Add", ["second", "a"], ["b"], "add_second"),
        helper.make_node("MatMul", ["b", "w"], ["m"], "fc"),
        helper.make_node("Add", ["m", "bias"], ["y"], "add_bias"),
    ]
    rng = np.random.default_rng(0)
    constants = {
        "first": first.astype("f4"),
        "second": second.astype("f4"),
        "w": rng.normal(0, 0.2, (_COLUMNS, 300)).astype("f4"),
        "bias": rng.normal(0, 1, 300).astype("f4"),
    }
    shapes = {"x": [1, _ROWS, _COLUMNS]}, {"y": [1, _ROWS, 300]}
    return ir.from_proto(onnx.shape_inference.infer_shapes(model_of(nodes, constants, *shapes)))


def drawn(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 1, (1, _ROWS, _COLUMNS))


def test_two_added_tables_become_one_of_float16() -> None:
    model = tables(first := drawn(1), second := drawn(2))
    store_what_is_float(model)
    assert [node.op_type for node in model.graph] == ["Cast", "Add", "MatMul", "Add"]
    (half,) = [each for each in model.graph.initializers.values() if each.dtype == ir.DataType.FLOAT16]
    assert half.const_value is not None
    expected = (first.astype("f4") + second.astype("f4")).astype("f2")
    np.testing.assert_array_equal(half.const_value.numpy(), expected)


def test_tables_that_cancel_stay_two() -> None:
    """x + 2**23 - 2**23 rounds x to whole numbers, and goes on doing so."""
    large = np.full((1, _ROWS, _COLUMNS), 2.0**23)
    model = tables(large, -large)
    store_what_is_float(model)
    assert sum(node.op_type == "Add" for node in model.graph) == 3


@pytest.mark.parametrize(("least", "dtype"), [(1e-8, ir.DataType.FLOAT), (1e-3, ir.DataType.FLOAT16)])
def test_what_divides_by_next_to_nothing_stays_float32(least: float, dtype: ir.DataType) -> None:
    """As float16 it is 0: the deviation of a pixel that is always black."""
    deviations = np.abs(drawn(1)) + 0.1
    deviations[0, 0, 0] = least
    node = helper.make_node("Div", ["x", "deviations"], ["y"], "scale")
    shapes = {"x": [1, _ROWS, _COLUMNS]}, {"y": [1, _ROWS, _COLUMNS]}
    model = ir.from_proto(model_of([node], {"deviations": deviations.astype("f4")}, *shapes))
    store_what_is_float(model)
    assert [each.dtype for each in model.graph.initializers.values()] == [dtype]


def test_a_dense_layers_bias_and_weights_stay_float32() -> None:
    """What quantizes its input on the fly has no kernel with another bias."""
    model = tables(drawn(1), drawn(2))
    store_what_is_float(model)
    assert {name for name, each in model.graph.initializers.items() if each.dtype == ir.DataType.FLOAT} == {"w", "bias"}


def convolutions() -> onnx.ModelProto:
    """A convolution with few weights, two with many of which one is depthwise, and a dense layer."""
    rng = np.random.default_rng(3)
    weights = {
        "few": rng.normal(0, 0.3, (64, 16, 1, 1)).astype("f4"),
        "few_bias": rng.normal(0, 1, 64).astype("f4"),
        "wide": rng.normal(0, 0.1, (320, 64, 1, 1)).astype("f4"),
        "wide_bias": rng.normal(0, 1, 320).astype("f4"),
        "deep": rng.normal(0, 0.4, (320, 1, 3, 3)).astype("f4"),
        "deep_bias": rng.normal(0, 1, 320).astype("f4"),
        "last": rng.normal(0, 0.1, (320, 400)).astype("f4"),
        "last_bias": rng.normal(0, 1, 400).astype("f4"),
    }
    nodes = [
        helper.make_node("Conv", ["x", "few", "few_bias"], ["n"], "narrow_conv"),
        helper.make_node("Conv", ["n", "wide", "wide_bias"], ["a"], "wide_conv"),
        helper.make_node("Relu", ["a"], ["ra"]),
        helper.make_node("Conv", ["ra", "deep", "deep_bias"], ["b"], "deep_conv", group=320, pads=[1] * 4),
        helper.make_node("GlobalAveragePool", ["b"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "last", "last_bias"], ["y"], "fc"),
    ]
    return model_of(nodes, weights, {"x": [1, 16, 9, 7]}, {"y": [1, 400]})


def test_small_weights_are_halves_and_biases_beside_integers_are_not(tmp_path: Path) -> None:
    onnx.save(convolutions(), tmp_path / "m.onnx")
    made = convertkit.export(tmp_path / "m.onnx", target="tflite", output=tmp_path / "out", w8=True)
    graph = schema.ModelT.InitFromObj(schema.Model.GetRootAs((made.path / "model.tflite").read_bytes(), 0))
    stored = {
        (each.type, int(np.prod(each.shape)))
        for each in graph.subgraphs[0].tensors
        if graph.buffers[each.buffer].data is not None
    }
    assert (schema.TensorType.FLOAT16, 64 * 16) in stored
    assert {(schema.TensorType.FLOAT32, size) for size in (320, 400)} <= stored
    assert delegated(made.path / "model.tflite") == [1]


def delegated(path: Path) -> list[int]:
    """Of each part that XNNPACK takes, how many values leave it: one part with one output is the whole model."""
    interpreter = Interpreter(model_path=str(path))
    interpreter.allocate_tensors()
    return [len(each["outputs"]) for each in interpreter._get_ops_details() if each["op_name"] == "DELEGATE"]
