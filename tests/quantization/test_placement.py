"""Where QDQ stands, and with which parameters."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from convertkit.errors import Unsupported
from convertkit.profile import KEEP_FLOAT
from tests.quantization.models import detector, images, model_of, small_cnn

DATA = images(24)


def test_interface_stays_and_nothing_fused_is_left_between(quantized) -> None:
    result = quantized(small_cnn(), DATA, without_costs=True)
    onnx.checker.check_model(str(result.after.path), full_check=True)
    assert [(s.name, s.dtype, s.shape) for s in result.after.inputs] == [
        (s.name, s.dtype, s.shape) for s in result.before.inputs
    ]
    assert [s.name for s in result.after.outputs] == ["y"]
    assert result.after.outputs[0].lsb is not None
    assert "Relu" not in result.operators()  # the ranges start at zero, so the integers saturate there
    assert result.snr_db(images(32, 5)) > 30


def test_same_bytes_again(quantized) -> None:
    assert quantized(small_cnn(), DATA).after.sha256 == quantized(small_cnn(), DATA).after.sha256


def test_weights_are_symmetric_per_channel_and_biases_are_products(quantized) -> None:
    result = quantized(small_cnn(), DATA, without_costs=True)
    constants = result.constants()
    producers = {node.output[0]: node for node in result.graph.node}
    checked = 0
    for node in result.graph.node:
        if node.op_type not in ("Conv", "Gemm"):
            continue
        x, weight, bias = (producers[name] for name in node.input)
        integers, scales = constants[weight.input[0]], constants[weight.input[1]]
        assert integers.dtype == np.int8
        assert integers.min() >= -127
        assert scales.shape == (integers.shape[0],)
        assert not constants[weight.input[2]].any()
        product = constants[x.input[1]] * scales
        np.testing.assert_allclose(constants[bias.input[1]], product, rtol=1e-6)
        assert constants[bias.input[0]].dtype == np.int32
        checked += 1
    assert checked == 4


def test_operators_that_move_data_share_parameters(quantized) -> None:
    result = quantized(small_cnn(), DATA, full_integer=True)
    producers = {node.output[0]: node for node in result.graph.node}
    consumers = {node.input[0]: node for node in result.graph.node if node.op_type == "QuantizeLinear"}
    constants = result.constants()
    pools = [node for node in result.graph.node if node.op_type in ("MaxPool", "Flatten", "Reshape")]
    assert pools
    for node in pools:
        before, after = producers[node.input[0]], consumers[node.output[0]]
        assert constants[before.input[1]] == constants[after.input[1]]
        assert constants[before.input[2]] == constants[after.input[2]]


def test_sigmoid_has_the_kernels_parameters_and_is_requantized_for_a_concat(quantized) -> None:
    result = quantized(detector(), DATA, full_integer=True)
    pairs = result.pairs()
    assert pairs["scores"] == (1 / 256, -128)
    assert sum(node.op_type == "QuantizeLinear" and "scores" in node.input[0] for node in result.graph.node) == 2


def test_full_integer_refuses_what_has_no_kernel(quantized) -> None:
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv"),
        helper.make_node("CumSum", ["c", "axis"], ["y"], "sums"),
    ]
    constants = {"w": rng.normal(0, 1, (4, 3, 3, 3)).astype("f4"), "axis": np.array(3)}
    model = model_of(nodes, constants, {"x": [1, 3, 12, 12]}, {"y": [1, 4, 10, 10]})
    with pytest.raises(Unsupported, match=r"sums \(CumSum\): tflite int8 has no integer kernel"):
        quantized(model, DATA, full_integer=True)
    assert quantized(model, DATA).snr_db(DATA) > 25


def test_float_parts_are_marked_where_their_neighbours_are_integers(quantized) -> None:
    rng = np.random.default_rng(0)
    constants = {
        "w1": rng.normal(0, 0.2, (64, 3, 3, 3)).astype("f4"),
        "w2": rng.normal(0, 0.2, (64, 64, 3, 3)).astype("f4"),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], "first"),
        helper.make_node("AveragePool", ["a"], ["p"], "pool", kernel_shape=[2, 2]),
        helper.make_node("Conv", ["p", "w2"], ["y"], "second"),
    ]
    model = model_of(nodes, constants, {"x": [1, 3, 12, 12]}, {"y": [1, 64, 7, 7]})
    result = quantized(model, DATA)
    (pool,) = [node for node in result.graph.node if node.op_type == "AveragePool"]
    assert [entry.key for entry in pool.metadata_props] == [KEEP_FLOAT]
    assert quantized(model, DATA, full_integer=True).snr_db(DATA) > 25


def test_int16_activations_are_symmetric_and_nearly_lossless(quantized) -> None:
    result = quantized(small_cnn(), DATA, "int16x8")
    assert {zero for _, zero in result.pairs().values()} == {0}
    assert result.snr_db(images(32, 5)) > 38


def test_matmul_bias_is_int32_and_shared_weights_are_quantized_for_both(quantized) -> None:
    rng = np.random.default_rng(0)
    constants = {"w": rng.normal(0, 0.3, (12, 12)).astype("f4"), "b": rng.normal(0, 0.3, 12).astype("f4")}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], "one"),
        helper.make_node("Add", ["m", "b"], ["a"], "bias"),
        helper.make_node("Relu", ["a"], ["r"], "relu"),
        helper.make_node("MatMul", ["r", "w"], ["y"], "two"),
    ]
    model = model_of(nodes, constants, {"x": [1, 3, 12, 12]}, {"y": [1, 3, 12, 12]})
    result = quantized(model, DATA, without_costs=True)
    assert result.operators() == ["MatMul", "Add", "MatMul"]
    assert sum(value.dtype == np.int32 for value in result.constants().values()) == 1
    assert result.snr_db(images(20, 5)) > 30


@pytest.mark.parametrize("target", ["tflite", "onnxruntime"])
def test_both_targets(quantized, target: str) -> None:
    assert quantized(small_cnn(), DATA, target=target).snr_db(images(32, 5)) > 30


def test_a_maximum_with_minus_infinity_stays_float(quantized) -> None:
    """JAX writes softmax with one; no integers express it."""
    rng = np.random.default_rng(0)
    constants = {"w": rng.normal(0, 0.3, (12, 12)).astype("f4"), "floor": np.array([-np.inf], "f4")}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], "product"),
        helper.make_node("Max", ["floor", "m"], ["g"], "maximum"),
        helper.make_node("MatMul", ["g", "w"], ["y"], "other"),
    ]
    model = model_of(nodes, constants, {"x": [1, 3, 12, 12]}, {"y": [1, 3, 12, 12]})
    assert quantized(model, DATA).snr_db(images(20, 5)) > 30


def test_what_stays_float_has_integer_weights_all_the_same(quantized) -> None:
    """A large depthwise kernel is faster in float by the table; its weights need not be four bytes each."""
    rng = np.random.default_rng(0)
    constants = {
        "w1": rng.normal(0, 0.2, (64, 3, 3, 3)).astype("f4"),
        "w2": rng.normal(0, 0.2, (64, 1, 7, 7)).astype("f4"),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], "first", pads=[1] * 4),
        helper.make_node("Conv", ["a", "w2"], ["y"], "large", pads=[3] * 4, group=64),
    ]
    result = quantized(model_of(nodes, constants, {"x": [1, 3, 12, 12]}, {"y": [1, 64, 12, 12]}), DATA)
    assert "large" in result.stage.diagnosis["float"]
    stored = {name: array for name, array in result.constants().items() if array.shape == (64, 1, 7, 7)}
    assert [array.dtype for array in stored.values()] == [np.int8]
    assert result.snr_db(images(32, 5)) > 30


@pytest.mark.parametrize(("target", "integer_end"), [("tflite", True), ("onnxruntime", False)])
def test_the_last_product_writes_float_where_the_kernel_can(quantized, target: str, integer_end: bool) -> None:
    # By TFLite's cost table so small a model is faster in float.
    result = quantized(small_cnn(), DATA, target=target, without_costs=integer_end)
    (end,) = [node for node in result.graph.node if node.output[0] == "y"]
    assert end.op_type == ("DequantizeLinear" if integer_end else "Gemm")
    assert (result.after.outputs[0].lsb is not None) == integer_end
