"""Averages with dilations, of which ONNX Runtime has no integer kernel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import helper

import convertkit
from convertkit.quantization.prepare.prepare import prepare
from tests.quantization.models import model_of

X = np.random.default_rng(0).standard_normal((32, 8, 16, 15)).astype(np.float32)


def averaged(**attributes: object) -> onnx.ModelProto:
    pool = helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[2, 3], **attributes)
    return model_of([pool], {}, {"x": ["N", 8, 16, 15]}, {"y": ["N", 8, None, None]}, 19)


@pytest.mark.parametrize(
    "attributes",
    [
        {"dilations": [2, 2]},
        {"dilations": [1, 3], "strides": [2, 1]},
        {"dilations": [2, 2], "pads": [1, 2, 1, 0], "count_include_pad": 1},
    ],
    ids=["plain", "one axis, strides", "counted pads"],
)
def test_a_dilated_average_is_a_convolution(attributes: dict[str, object]) -> None:
    model = averaged(**attributes)
    changed = ir.from_proto(model)
    prepare(changed)
    made = ir.to_proto(changed)
    onnx.checker.check_model(made, full_check=True)
    assert [node.op_type for node in made.graph.node] == ["Conv"]
    sessions = [onnxruntime.InferenceSession(each.SerializeToString()) for each in (model, made)]
    expected, got = (session.run(None, {"x": X})[0] for session in sessions)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "attributes",
    [{}, {"dilations": [1, 1]}, {"dilations": [2, 2], "pads": [1] * 4}, {"dilations": [2, 2], "ceil_mode": 1}],
    ids=["no dilations", "dilations of 1", "pads that are left out", "ceil_mode"],
)
def test_another_average_stays(attributes: dict[str, object]) -> None:
    changed = ir.from_proto(averaged(**attributes))
    prepare(changed)
    assert [node.op_type for node in changed.graph] == ["AveragePool"]


def test_an_average_padded_by_an_unknown_size_stays() -> None:
    """A Conv that pads by the size takes no dilations."""
    model = averaged(dilations=[2, 2], auto_pad="SAME_UPPER", count_include_pad=1)
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "H"
    changed = ir.from_proto(model)
    prepare(changed)
    assert [node.op_type for node in changed.graph] == ["AveragePool"]


def test_integers_around_a_dilated_average_are_delivered(tmp_path: Path) -> None:
    weight = np.random.default_rng(1).standard_normal((8, 8, 3, 3)).astype(np.float32) / 6
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4),
        helper.make_node("AveragePool", ["c"], ["p"], kernel_shape=[2, 2], dilations=[2, 2]),
        helper.make_node("Conv", ["p", "w"], ["y"], pads=[1] * 4),
    ]
    source = tmp_path / "net.onnx"
    onnx.save(model_of(nodes, {"w": weight}, {"x": ["N", 8, 16, 15]}, {"y": ["N", 8, 14, 13]}, 19), source)
    result = convertkit.export(source, "tflite", int8=True, full_integer=True, calib={"x": X}, output=tmp_path / "out")
    assert result.report["passed"]
    assert {each["kind"] for each in result.report["operators"]} >= {"CONV_2D", "DEPTHWISE_CONV_2D"}


@pytest.mark.parametrize(
    "attributes", [{"pads": [1] * 4}, {"ceil_mode": 1}], ids=["pads that are left out", "ceil_mode"]
)
def test_a_dilated_average_that_stays_is_float_between_integers(quantized, attributes: dict[str, object]) -> None:
    result = quantized(averaged(dilations=[2, 2], **attributes), X, target="onnxruntime", without_costs=True)
    assert "QuantizeLinear" not in {node.op_type for node in result.graph.node}
    assert result.snr_db(X) > 100
