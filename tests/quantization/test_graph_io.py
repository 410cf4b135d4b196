"""``--io-dtype``: an end that stays float inside has its conversion at the border."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import helper

from convertkit.errors import Unsupported
from convertkit.onnx.load import load_model
from convertkit.targets.tflite.compile import Compiled, compile_model
from convertkit.targets.tflite.passes import Options
from tests.quantization.conftest import Quantized
from tests.quantization.models import model_of

DATA = np.random.default_rng(3).normal(0, 2, (24, 64, 64)).astype(np.float32)
Quantize = Callable[..., Quantized]


def two_readers() -> onnx.ModelProto:
    """A product of the input, in integers; its Softmax, in float; the Softmax of their sum is the output."""
    weight = np.random.default_rng(0).normal(0, 0.3, (64, 64, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["image"], "reshape"),
        helper.make_node("Conv", ["image", "w"], ["c"], "conv", pads=[1] * 4),
        helper.make_node("Conv", ["c", "w"], ["d"], "again", pads=[1] * 4),
        helper.make_node("Reshape", ["d", "back"], ["flat"], "flat"),
        helper.make_node("Softmax", ["x"], ["s"], "softmax"),
        helper.make_node("Add", ["flat", "s"], ["sum"], "add"),
        helper.make_node("Softmax", ["sum"], ["y"], "last"),
    ]
    constants = {"w": weight, "shape": np.array([1, 64, 8, 8]), "back": np.array([1, 64, 64])}
    return model_of(nodes, constants, {"x": [1, 64, 64]}, {"y": [1, 64, 64]})


def converted(result: Quantized, io_dtype: str) -> Compiled:
    return compile_model(load_model(result.after.path), Options(precision="int8", io_dtype=io_dtype))


@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_ends_are_integers(quantized: Quantize, kind: str) -> None:
    result = quantized(two_readers(), DATA, io_dtype=kind)
    compiled = converted(result, kind)
    assert [spec.dtype for spec in (*compiled.inputs, *compiled.outputs)] == [kind, kind]
    assert result.snr_db(DATA) > 15
    codes = {operation.code: operation.outputs[0].dtype for operation in compiled.program.subgraphs[0].operations}
    assert codes["SOFTMAX"] == "float32"
    (output,) = compiled.outputs
    assert output.quantization is not None
    assert output.quantization.scale == pytest.approx(1 / 255, rel=0.2)


def test_without_the_flag_they_stay_float(quantized: Quantize) -> None:
    result = quantized(two_readers(), DATA)
    assert "y" not in [node.input[0] for node in result.graph.node if node.op_type == "QuantizeLinear"]
    with pytest.raises(Unsupported, match="--io-dtype"):
        converted(result, "int8")


def test_what_nobody_measured_is_refused(quantized: Quantize) -> None:
    nodes = [helper.make_node("Exp", ["x"], ["y"], "exp")]
    result = quantized(model_of(nodes, {}, {"x": [1, 64, 64]}, {"y": [1, 64, 64]}), DATA, io_dtype="int8")
    with pytest.raises(Unsupported, match="--io-dtype: input x is used in float"):
        converted(result, "int8")


def test_a_product_of_an_input_that_stays_float_is_told_as_float(quantized: Quantize) -> None:
    """Behind the pair it reads integers made real, which no kernel quantizes on the fly."""
    rng = np.random.default_rng(0)
    weights = {name: rng.normal(0, 0.1, (512, 512)).astype(np.float32) for name in ("w", "v")}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "first"),
        helper.make_node("Relu", ["a"], ["r"], "relu"),
        helper.make_node("MatMul", ["r", "v"], ["y"], "second"),
    ]
    model = model_of(nodes, weights, {"x": [64, 512]}, {"y": [64, 512]})
    data = rng.normal(0, 2, (24, 64, 512)).astype(np.float32)
    result = quantized(model, data, io_dtype="int8")
    options = Options(precision="int8", io_dtype="int8")
    compiled = compile_model(load_model(result.after.path), options)
    products = [each for each in compiled.program.subgraphs[0].operations if each.code == "FULLY_CONNECTED"]
    integers = sum(each.inputs[1].dtype == "int8" for each in products if each.inputs[1] is not None)
    assert result.stage.diagnosis["integer_macs_share"] == integers / len(products)


def ends_in_a_product() -> onnx.ModelProto:
    """Products in integers, their Softmax in float, and of that another product."""
    rng = np.random.default_rng(0)
    sizes = {"w": (64, 512), "v": (512, 512), "last": (512, 512)}
    weights = {name: rng.normal(0, 0.1, size).astype(np.float32) for name, size in sizes.items()}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "first"),
        helper.make_node("Relu", ["a"], ["r"], "relu"),
        helper.make_node("MatMul", ["r", "v"], ["b"], "second"),
        helper.make_node("Softmax", ["b"], ["s"], "softmax"),
        helper.make_node("MatMul", ["s", "last"], ["y"], "end"),
    ]
    return model_of(nodes, weights, {"x": [1, 64, 64]}, {"y": [1, 64, 512]})


def test_a_product_that_ends_in_float_rounds_what_it_reads(quantized: Quantize) -> None:
    """Its weights stay integers: made real, the product takes as long as in float."""
    device = ("arm64-i8mm",)
    result = quantized(ends_in_a_product(), DATA, io_dtype="int8", device=device)
    options = Options(precision="int8", io_dtype="int8", device=device)
    compiled = compile_model(load_model(result.after.path), options)
    *_, product, rounded = compiled.program.subgraphs[0].operations
    assert (product.code, rounded.code) == ("FULLY_CONNECTED", "QUANTIZE")
    assert [each.dtype for each in product.inputs[:2] if each is not None] == ["float32", "int8"]
    assert rounded.outputs[0].dtype == "int8"
