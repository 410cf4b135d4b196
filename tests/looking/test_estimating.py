"""``convertkit bench --device``: TFLite files on devices that are not here, the same on every machine."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import convertkit
from convertkit.errors import Unsupported, UsageError
from convertkit.kernel_costs import ConvShape
from convertkit.summary import schema
from convertkit.targets.tflite.costs.calls import call_costs
from convertkit.targets.tflite.costs.tables import tables
from tests import onnx_models
from tests.command_line import here


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, Path]:
    """A convolution and a pooling as float32 and as integers, and their ONNX."""
    place = tmp_path_factory.mktemp("estimated")
    rng = np.random.default_rng(0)
    weight = numpy_helper.from_array(rng.normal(0, 0.06, (32, 24, 3, 3)).astype(np.float32), "w")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv", pads=[1] * 4),
        helper.make_node("MaxPool", ["c"], ["y"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
    ]
    path = onnx_models.write(place, onnx_models.model(nodes, {"x": [1, 24, 28, 28]}, {"y": [1, 32, 14, 14]}, [weight]))
    calib = {"x": rng.normal(0, 1, (16, 24, 28, 28)).astype(np.float32)}
    made = {"float": {}, "int8": {"int8": True, "full_integer": True, "calib": calib}}
    found = {
        name: convertkit.export(path, "tflite", output=place / name, **how).artifact.path for name, how in made.items()
    }
    return {**found, "onnx": path}


def test_a_file_takes_what_the_tables_say_of_its_operators(files) -> None:
    found = convertkit.bench(files["float"], device="arm64-a76")
    (each,) = found.estimated
    by_kind = {node.kind: node.ms for node in each.nodes}
    known = tables(("arm64-a76",))
    conv = known.kernel_costs.written(ConvShape(784, 28, (3, 3), 1, 24, 32))[1]
    pool = known.costs["MaxPool"].times(784 * 32, (784 + 196) * 32)[1]
    assert by_kind["CONV_2D"] == pytest.approx(conv / 1e6)
    assert by_kind["MAX_POOL_2D"] == pytest.approx(pool / 1e6)
    call = call_costs("arm64-a76")
    beside = call.call + call.operator * len(each.nodes)
    assert each.ms == pytest.approx(sum(by_kind.values()) + beside / 1e6)
    assert found.measured == ()
    assert "estimated, arm64-a76, " in found.headline


def test_integers_are_faster_and_two_runs_say_the_same(files) -> None:
    both = [convertkit.bench(files["float"], files["int8"], device=("arm64-a76", "phone")) for _ in range(2)]
    assert both[0].as_json() == both[1].as_json()
    assert [each.device for each in both[0].estimated] == ["arm64-a76", "arm64-a76", "phone", "phone"]
    (first, second) = both[0].compared
    assert first.beside == f"{files['float']} on arm64-a76"
    assert 0.1 < first.ratio.median < 0.5
    assert first.ratio.low == first.ratio.high
    phone = {each.name: each.ms for each in both[0].estimated if each.device == "phone"}
    assert second.ratio.median == pytest.approx(phone[str(files["int8"])] / phone[str(files["float"])])


def test_a_phone_is_half_of_each_of_its_cores(files) -> None:
    found = convertkit.bench(files["int8"], device=("phone", "arm64-a76", "arm64-i8mm"))
    phone, *cores = (each.ms for each in found.estimated)
    assert phone == pytest.approx(sum(cores) / 2)


def test_a_border_of_zeros_is_part_of_the_convolution_that_reads_it(tmp_path) -> None:
    rng = np.random.default_rng(0)
    weight = numpy_helper.from_array(rng.normal(0, 0.06, (32, 24, 3, 3)).astype(np.float32), "w")
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], "conv", pads=[1] * 4, strides=[2, 2])]
    path = onnx_models.write(
        tmp_path, onnx_models.model(nodes, {"x": [1, 24, 28, 28]}, {"y": [1, 32, 14, 14]}, [weight])
    )
    made = convertkit.export(path, "tflite", output=tmp_path / "out").artifact.path
    (each,) = convertkit.bench(made, device="arm64-a76").estimated
    assert [(node.kind, node.ms > 0) for node in each.nodes] == [("PAD", False), ("CONV_2D", True)]


def test_a_gate_stands_on_it(files) -> None:
    line = ["bench", files["int8"], files["float"], "--device", "arm64-a76"]
    assert here(*line, "--max-ratio", "9").code == 0
    said = here(*line, "--max-ratio", "1.02", "--json")
    assert said.code == 3
    told = json.loads(said.out)
    jsonschema.validate(told, schema())
    assert [each["device"] for each in told["bench"]["estimated"]] == ["arm64-a76"] * 2


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"device": "arm64-a67"}, "no device is called so, did you mean 'arm64-a76'"),
        ({"device": "phone", "threads": 1}, "--device estimates"),
        ({"device": "phone", "save": "baseline.json"}, "--device estimates"),
    ],
)
def test_what_makes_no_sense_is_refused(files, how, told) -> None:
    with pytest.raises(UsageError, match=told):
        convertkit.bench(files["float"], **how)


def test_other_formats_have_no_tables(files, tmp_path) -> None:
    with pytest.raises(
        UsageError,
        match=r"what openvino takes elsewhere is not estimated; --device .* of android, onnxruntime, ort-mobile",
    ):
        convertkit.bench(convertkit.export(files["onnx"], "openvino", output=tmp_path / "ir").path, device="phone")


@pytest.mark.parametrize("device", ["x86-vnni", "x86-amx"])
def test_a_device_without_a_table_of_the_runtime_is_refused(files, device) -> None:
    with pytest.raises(UsageError, match=f"--device {device}: its costs are known for android and tflite alone; there"):
        convertkit.bench(files["onnx"], device=device)


def test_an_operator_that_no_table_knows_is_named(tmp_path) -> None:
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8]) for name in ("x", "y")]
    nodes = [helper.make_node("Cos", ["x"], ["y"], "cosine")]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:])
    path = onnx_models.write(
        tmp_path, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    )
    made = convertkit.export(path, "tflite", output=tmp_path / "out").artifact.path
    with pytest.raises(Unsupported, match="no cost table knows COS"):
        convertkit.bench(made, device="phone")
