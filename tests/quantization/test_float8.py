"""--fp8: which products get pairs of E4M3, with which scales, and that the file computes what they say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import convertkit
from convertkit.errors import GateError, UsageError
from convertkit.quantization.float8 import GREATEST, channel_scales
from convertkit.report.schema import schema
from tests import onnx_models

DRAW = np.random.default_rng(3)
DATA = DRAW.normal(0, 1, (40, 3, 6, 5)).astype(np.float32)
DATA[0, 0, 0, 0] = 7.0


def network() -> onnx.ModelProto:
    """A convolution, a Gemm with transB, a product of two activations."""
    weights = {"w": (4, 3, 3, 3), "b": (4,), "v": (6, 4), "c": (6,)}
    draw = np.random.default_rng(5)
    stored = [numpy_helper.from_array(draw.normal(0, 1, shape).astype(np.float32), k) for k, shape in weights.items()]
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["h"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["h"], ["r"], "relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["g"], "mean"),
        helper.make_node("Flatten", ["g"], ["f"], "flat"),
        helper.make_node("Gemm", ["f", "v", "c"], ["a"], "gemm", transB=1),
        helper.make_node("Transpose", ["a"], ["t"], "turn", perm=[1, 0]),
        helper.make_node("MatMul", ["a", "t"], ["y"], "dynamic"),
    ]
    return onnx_models.model(nodes, {"x": ["N", 3, 6, 5]}, {"y": ["N", "N"]}, stored)


def exported(tmp_path: Path, proto: object, data: np.ndarray = DATA, became: str = "mixed") -> onnx.ModelProto:
    source = onnx_models.write(tmp_path, proto, "source.onnx")
    made = convertkit.export(source, "tensorrt", output=tmp_path / "out", fp8=True, calib=data)
    assert made.report["effective"]["effective"] == became
    jsonschema.validate(json.loads((tmp_path / "out" / "report.json").read_text()), schema())
    return onnx.load(made.artifact.path)


def constants(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}


def test_products_with_stored_weights_are_of_e4m3(tmp_path: Path) -> None:
    model = exported(tmp_path, network())
    makers = {name: node for node in model.graph.node for name in node.output}
    kinds = {node.name: [getattr(makers.get(name), "op_type", "") for name in node.input] for node in model.graph.node}
    assert kinds["conv"] == ["DequantizeLinear", "DequantizeLinear", ""]
    assert kinds["gemm"] == ["DequantizeLinear", "DequantizeLinear", ""]
    assert "DequantizeLinear" not in kinds["dynamic"]
    stored = [each for each in model.graph.initializer if each.data_type == onnx.TensorProto.FLOAT8E4M3FN]
    assert {tuple(each.dims) for each in stored} == {(), (4,), (6,), (4, 3, 3, 3), (6, 4)}
    assert not {"w", "v"} & set(constants(model)), "the float weights are gone"


def test_the_greatest_magnitude_is_448_steps(tmp_path: Path) -> None:
    proto = network()
    known = constants(exported(tmp_path, proto))
    weight = constants(proto)["w"]
    np.testing.assert_array_equal(known["w_scale"], np.abs(weight).max(axis=(1, 2, 3)) / np.float32(448))
    assert known["x_scale"] == np.float32(7.0 / 448)
    scaled = weight / known["w_scale"].reshape(-1, 1, 1, 1)
    np.testing.assert_array_equal(known["w_quantized"], scaled.astype(ml_dtypes.float8_e4m3fn))


def test_what_is_verified_is_what_the_pairs_say(tmp_path: Path) -> None:
    model = exported(tmp_path, network())
    (wanted,) = ReferenceEvaluator(network()).run(None, {"x": DATA[:4]})
    (found,) = ReferenceEvaluator(model).run(None, {"x": DATA[:4]})
    snr = 20 * np.log10(np.linalg.norm(wanted) / np.linalg.norm(found - wanted))
    assert 20 < snr < 45


def test_scales_of_channels() -> None:
    weight = np.array([[0.0, 0.0], [-2.0, 1.0], [1e-42, 0.0]], np.float32)
    scales = channel_scales(weight, 0)
    assert scales.dtype == np.float32
    np.testing.assert_allclose(scales[:2], [1.0, 2.0 / GREATEST], rtol=1e-6)
    assert scales[2] > 1e-38, "a normal number"


def half_silent() -> onnx.ModelProto:
    """Two products of positive inputs; what the second one reads, ``silent``, is 0 for all of them."""
    proto = onnx_models.mlp()
    for each in proto.graph.initializer:
        if each.name in ("w1", "b1"):
            each.CopyFrom(numpy_helper.from_array(-np.abs(numpy_helper.to_array(each)), each.name))
    proto.graph.node[2].name, proto.graph.node[2].output[0] = "silent", "z"
    proto.graph.initializer.append(numpy_helper.from_array(DRAW.normal(0, 1, (5, 3)).astype(np.float32), "w3"))
    proto.graph.node.append(helper.make_node("MatMul", ["x", "w3"], ["m"], "loud"))
    proto.graph.node.append(helper.make_node("Add", ["z", "m"], ["y"], "sum"))
    return proto


POSITIVE = np.abs(np.random.default_rng(3).normal(0, 1, (20, 5))).astype(np.float32)


def test_a_product_without_a_range_stays_float(tmp_path: Path) -> None:
    """Of an input that is 0 on all of the data nothing is known."""
    model = exported(tmp_path, half_silent(), POSITIVE)
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    (step,) = (each for each in report["steps"] if each["stage"] == "float8")
    assert step["diagnosis"]["float"] == {"silent": "its input is 0 on all of the data, or has no bound"}
    makers = {name: node.op_type for node in model.graph.node for name in node.output}
    inputs = {node.name: [makers.get(name) for name in node.input] for node in model.graph.node}
    assert inputs["silent"][:2] == ["Relu", None]
    assert inputs["loud"] == ["DequantizeLinear"] * 2
    assert re.match(r"fp8 became mixed: \d\d % of the multiply-adds in 8-bit floats", report["effective"]["sentence"])


def test_strict_takes_what_is_e4m3_throughout(tmp_path: Path) -> None:
    source = onnx_models.write(tmp_path, onnx_models.mlp(), "source.onnx")
    made = convertkit.export(source, "tensorrt", output=tmp_path / "out", fp8=True, calib=POSITIVE, strict=True)
    assert made.report["effective"]["effective"] == "fp8"


def test_strict_refuses_what_is_partly_float(tmp_path: Path) -> None:
    source = onnx_models.write(tmp_path, half_silent(), "source.onnx")
    with pytest.raises(GateError, match=r"--strict: fp8 became mixed: .*\n  try   leave --strict out to accept that$"):
        convertkit.export(source, "tensorrt", output=tmp_path / "out", fp8=True, calib=POSITIVE, strict=True)


@pytest.mark.parametrize(
    ("target", "how", "error", "says"),
    [
        ("tensorrt", {}, UsageError, "--fp8 measures activation ranges and needs data: --calib PATH"),
        ("onnxruntime", {"calib": DATA}, UsageError, "target onnxruntime does not deliver fp8"),
        ("tensorrt", {"calib": DATA, "int8": True}, UsageError, "int8"),
        ("tensorrt", {"calib": DATA, "full_integer": True}, UsageError, "--full-integer goes with --int8 or --int16x8"),
        ("tensorrt", {"calib": DATA, "calib_method": "mse"}, UsageError, "--calib-method mse goes with --int8"),
    ],
)
def test_refusals(tmp_path: Path, target: str, how: dict[str, object], error: type[Exception], says: str) -> None:
    source = onnx_models.write(tmp_path, network(), "source.onnx")
    with pytest.raises(error, match=says):
        convertkit.export(source, target, output=tmp_path / "out", fp8=True, **how)
    assert not (tmp_path / "out").exists()
