"""ncnn's files: what they compute, how weights are stored, the same bytes, what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import convertkit
from convertkit.artifact import sha256_of
from convertkit.errors import FeedError, ParityError, ToolError, WorkerError
from convertkit.onnx.load import load_own
from convertkit.result import Result
from convertkit.targets.ncnn.runner import NcnnRunner
from tests import installed

installed.needs("ncnn")

NETWORK = "fixtures/digits/model.pt"
RNG = np.random.default_rng(5)
SIZES = {"float32": (430_000, 470_000), "fp16": (215_000, 240_000), "w8": (110_000, 130_000)}
"""Bytes of the weights: least and most."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return convertkit.export(NETWORK, "ncnn", output=tmp_path_factory.mktemp("ncnn") / "out")


def test_the_files_compute_what_the_graph_says(made):
    (output,) = made.report["steps"][-1]["parity"]["versus_previous"]["tensors"]
    assert float(output["relative"]) < 1e-5
    assert made.report["runs_here"]
    assert made.report["steps"][-1]["artifact"]["runtime"].startswith("ncnn 1.")
    text = (made.path / "README.md").read_text()
    assert "| input | input | 1 × 1 × 8 × 8 | 1 × 8 × 8 (c × h × w) | float32 |" in text
    assert "net.opt.use_winograd_convolution = false;" in text
    with NcnnRunner(made.artifact) as runner, pytest.raises(FeedError, match="the files"):
        runner.run({"input": np.zeros((2, 1, 8, 8), np.float32)})


def test_two_folders_hold_the_same_bytes(made, tmp_path):
    again = convertkit.export(NETWORK, "ncnn", output=tmp_path / "a-much-longer-name")
    for name in ("model.param", "model.bin", "ports.json"):
        assert sha256_of(again.path / name) == sha256_of(made.path / name)


@pytest.mark.parametrize("precision", ["fp16", "w8"])
def test_weights_are_stored_as_asked_and_are_those_of_the_graph(tmp_path, precision):
    result = convertkit.export(NETWORK, "ncnn", output=tmp_path / "out", **{precision: True})
    least, most = SIZES[precision]
    assert least < (result.path / "model.bin").stat().st_size < most
    (output,) = result.report["steps"][-1]["parity"]["versus_previous"]["tensors"]
    assert float(output["relative"]) < 1e-5


def test_tokens_are_looked_up(tmp_path):
    """Ids of 64 bits go into a table; the batch goes."""
    ports = [
        helper.make_tensor_value_info("ids", TensorProto.INT64, [1, 5]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
    ]
    table = RNG.standard_normal((7, 6)).astype(np.float32)
    stored = [numpy_helper.from_array(table, "table"), numpy_helper.from_array(np.float32(2), "two")]
    nodes = [helper.make_node("Gather", ["table", "ids"], ["e"]), helper.make_node("Mul", ["e", "two"], ["y"])]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(onnx.shape_inference.infer_shapes(model), tmp_path / "m.onnx")
    result = convertkit.export(tmp_path / "m.onnx", "ncnn", output=tmp_path / "out")
    ids = np.array([[6, 0, 3, 3, 1]])
    assert np.array_equal(result.run({"ids": ids})["y"], table[ids] * 2)
    assert [note for note in result.report["notes"] if "input ids: give places from 0 on" in note]
    assert "| ids | ids | 1 × 5 | 5 (w) | int32 |" in (result.path / "README.md").read_text()


def test_a_mask_of_integers_is_taken_in_float(tmp_path):
    """What only a Cast reads, behind what moves it; numbers below 0 are no places."""
    ports = [
        helper.make_tensor_value_info("mask", TensorProto.INT64, [1, 5]),
        helper.make_tensor_value_info("flags", TensorProto.BOOL, [1, 1, 5, 1]),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 5, 3]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 5, 3]),
    ]
    stored = [numpy_helper.from_array(np.array([1, 3]), "axes")]
    nodes = [
        helper.make_node("Unsqueeze", ["mask", "axes"], ["m"]),
        helper.make_node("Cast", ["m"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["flags"], ["kept"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["x", "kept"], ["p"]),
        helper.make_node("Sub", ["p", "real"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", ports[:3], ports[3:], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(onnx.shape_inference.infer_shapes(model), tmp_path / "m.onnx")
    result = convertkit.export(tmp_path / "m.onnx", "ncnn", output=tmp_path / "out")
    x = RNG.standard_normal((1, 4, 5, 3)).astype(np.float32)
    mask, flags = np.array([[2**24 + 3, 0, -3, 1, 9]]), np.array([True, False, True, True, False]).reshape(1, 1, 5, 1)
    found = result.run({"x": x, "mask": mask, "flags": flags})["y"]
    assert np.array_equal(found, x * flags - mask.reshape(1, 1, 5, 1).astype(np.float32))
    text = (result.path / "README.md").read_text()
    assert "| mask | mask | 1 × 5 | 5 (w) | float32 |" in text


@pytest.mark.parametrize(("name", "cut"), [("model.param", 200), ("model.bin", 1000), ("model.param", 0)])
def test_what_is_not_whole_is_refused(made, tmp_path, name, cut):
    for file in made.path.glob("*.*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    path = tmp_path / name
    path.write_bytes(path.read_bytes()[:cut] if cut else b"not one")
    artifact = type(made.artifact)(tmp_path / "model.param", "ncnn", made.artifact.inputs, made.artifact.outputs, "")
    with pytest.raises((ToolError, WorkerError)), NcnnRunner(artifact) as runner:
        runner.run({"input": np.zeros((1, 1, 8, 8), np.float32)})


def test_wrong_numbers_of_a_file_are_caught(tmp_path, monkeypatch):
    def wrong(path: Path) -> ir.Model:
        model = load_own(path)
        value = next(each for each in model.graph.initializers.values() if each.const_value.numpy().size > 100)
        value.const_value = ir.tensor(value.const_value.numpy() * np.float32(1.001), name=value.name)
        return model

    monkeypatch.setattr("convertkit.targets.ncnn.stage.load_own", wrong)
    with pytest.raises(ParityError, match="after ncnn"):
        convertkit.export(NETWORK, "ncnn", output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_sum_of_exponentials_of_large_numbers(tmp_path):
    """ncnn's own layer is infinite from 89 on."""
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 4])]
    ports.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, [3]))
    axes = numpy_helper.from_array(np.array([1]), "axes")
    node = helper.make_node("ReduceLogSumExp", ["x", "axes"], ["y"], keepdims=0)
    graph = helper.make_graph([node], "g", ports[:1], ports[1:], [axes])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, tmp_path / "m.onnx")
    made = convertkit.export(tmp_path / "m.onnx", "ncnn", output=tmp_path / "out")
    feed = {"x": np.array([[150, 151, -200, 3], [-1000, -1001, -1002, -999], [90, 90, 90, 90]], np.float32)}
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feed)
    assert np.allclose(made.run(feed)["y"], expected, rtol=1e-5)
