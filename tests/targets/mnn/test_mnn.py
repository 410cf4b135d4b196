"""MNN's files: what they compute, which integers they store, the same bytes, what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import convertkit
from convertkit.artifact import Artifact, TensorSpec, sha256_of
from convertkit.errors import ParityError, ToolError, Unsupported, WorkerError
from convertkit.onnx.load import load_own
from convertkit.result import Result
from convertkit.targets.forms.rounded import ROUNDED
from convertkit.targets.mnn.runner import MnnRunner
from convertkit.targets.mnn.stage import WriteMnn
from tests import installed
from tests.targets.mnn.graphs import saved

installed.needs("MNN")

NETWORK = "fixtures/digits/model.pt"
RNG = np.random.default_rng(3)
SIZES = {"float32": (430_000, 470_000), "fp16": (215_000, 240_000), "w8": (110_000, 130_000), "w4": (55_000, 70_000)}
"""Bytes: least and most."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return convertkit.export(NETWORK, "mnn", output=tmp_path_factory.mktemp("mnn") / "out")


def test_the_file_computes_what_the_graph_says(made):
    (output,) = made.report["steps"][-1]["parity"]["versus_previous"]["tensors"]
    assert float(output["relative"]) < 1e-5
    assert made.report["runs_here"]
    assert made.report["steps"][-1]["artifact"]["runtime"].startswith("MNN 3.")
    assert "manager.set_hint(3, 0)" in (made.path / "README.md").read_text()


def test_any_batch_is_right(made):
    x = RNG.standard_normal((5, 1, 8, 8)).astype(np.float32)
    whole = made.run({"input": x})["output"]
    single = [made.run({"input": each[None]})["output"][0] for each in x]
    assert whole.shape == (5, 10)
    assert np.allclose(whole, single, atol=1e-5)


def test_two_folders_hold_the_same_bytes(made, tmp_path):
    again = convertkit.export(NETWORK, "mnn", output=tmp_path / "a-much-longer-name")
    assert sha256_of(again.artifact.path) == sha256_of(made.artifact.path)


@pytest.mark.parametrize("precision", ["fp16", "w8", "w4"])
def test_weights_are_stored_as_asked_and_are_those_of_the_graph(tmp_path, precision):
    result = convertkit.export(NETWORK, "mnn", output=tmp_path / "out", **{precision: True})
    least, most = SIZES[precision]
    assert least < result.artifact.path.stat().st_size < most
    (output,) = result.report["steps"][-1]["parity"]["versus_previous"]["tensors"]
    assert float(output["relative"]) < 1e-5
    assert not [note for note in result.report["notes"] if "float32 in the file" in note]


def test_a_weight_that_does_not_come_back_stays_float(tmp_path):
    """Its first channel has no end at 127, so MNN would take another scale."""
    stored = {
        "w": np.array([[100, 127], [-3, 9], [55, -31]], np.int8).repeat(40, 0), "s": np.array([0.01, 0.02], np.float32),
    }  # fmt: skip
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=1),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    result = convertkit.export(saved(tmp_path, nodes, ("N", 120), **stored), "mnn", output=tmp_path / "out")
    assert result.artifact.path.stat().st_size > 240 * 4
    assert [note for note in result.report["notes"] if note.startswith("1 of 1 weights stay float32 in the file")]
    x = RNG.standard_normal((3, 120)).astype(np.float32)
    assert np.allclose(result.run({"x": x})["y"], x @ (stored["w"] * stored["s"]), rtol=1e-5, atol=1e-4)


def test_rounded_activations_have_the_tolerance_of_integers(tmp_path):
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s"], ["y"]),
    ]
    path, stage = saved(tmp_path, nodes, (3, 50), s=np.float32(0.01)), WriteMnn("float32")
    ports = [(TensorSpec(name, (3, 50), "float32"),) for name in "xy"]
    stage.run(Artifact(path, "onnx", *ports, ""), tmp_path)
    assert stage.tolerance == ROUNDED


def test_integers_keep_the_type_of_the_source(tmp_path):
    """MNN's are of 32 bits."""
    nodes = [helper.make_node("ArgMax", ["x"], ["y"], axis=1, keepdims=0)]
    path = saved(tmp_path, nodes, (3, 50), made=TensorProto.INT64)
    x = RNG.standard_normal((3, 50)).astype(np.float32)
    found = convertkit.export(path, "mnn", output=tmp_path / "out").run({"x": x})["y"]
    assert found.dtype == np.int64
    assert np.array_equal(found, x.argmax(1))


def test_rows_are_convolved_back_as_images(tmp_path):
    wide = {"strides": [3], "pads": [2, 1], "dilations": [2], "output_padding": [1], "group": 2}
    node = helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"], **wide)
    w, b = RNG.standard_normal((4, 3, 5)).astype(np.float32), np.arange(6, dtype=np.float32)
    path = saved(tmp_path, [node], ("n", 4, 11), w=w, b=b)
    result = convertkit.export(path, "mnn", output=tmp_path / "out")
    x = RNG.standard_normal((3, 4, 11)).astype(np.float32)
    expected = ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    np.testing.assert_allclose(result.run(x)["y"], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("last", ["Identity", "Clip"])
def test_rows_at_the_end_have_no_fourth_axis(tmp_path, last):
    """Convolutions of sounds that end a model were refused: MNN gives images where an activation alone follows."""
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"]), helper.make_node(last, ["c"], ["y"])]
    w, b = RNG.standard_normal((5, 4, 3)).astype(np.float32), np.arange(5, dtype=np.float32)
    path = saved(tmp_path, nodes, ("n", 4, 11), w=w, b=b)
    result = convertkit.export(path, "mnn", output=tmp_path / "out")
    x = RNG.standard_normal((3, 4, 11)).astype(np.float32)
    expected = ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    assert result.run(x)["y"].shape == expected.shape
    np.testing.assert_allclose(result.run(x)["y"], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(4, 1, 7), (3, 4, 5, 7), (7,)])
def test_comparisons_repeat_either_side(tmp_path, shape):
    kinds = ("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal")
    nodes = [helper.make_node(kind, ["x", "c"], [f"{kind} flags"]) for kind in kinds]
    nodes += [helper.make_node("Cast", [f"{kind} flags"], [kind], to=TensorProto.FLOAT) for kind in kinds]
    nodes.append(helper.make_node("Concat", kinds, ["y"], axis=0))
    c, x = (RNG.integers(-2, 3, each).astype(np.float32) for each in (shape, (3, 1, 5, 7)))
    path = saved(tmp_path, nodes, x.shape, c=c)
    (expected,) = ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    ports = [(TensorSpec(name, each.shape, "float32"),) for name, each in (("x", x), ("y", expected))]
    artifact = WriteMnn("float32").run(Artifact(path, "onnx", *ports, ""), tmp_path)
    with MnnRunner(artifact) as runner:
        np.testing.assert_array_equal(runner.run({"x": x})["y"], expected)


SIGNED = np.array([[0, -0.0], [-0.0, 0], [1.5, 1.5], [-2, -1]], np.float32)


@pytest.mark.parametrize("kind", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("size", [2, 3, 8])
def test_of_equal_elements_the_place_is_the_same(tmp_path, kind, last, size):
    """Zeros of both signs are equal; MNN takes them for two numbers at some sizes."""
    rows = np.tile(SIGNED, (1, 4))[:, :size]
    node = helper.make_node(kind, ["x"], ["places"], axis=1, keepdims=0, select_last_index=last)
    cast = helper.make_node("Cast", ["places"], ["y"], to=TensorProto.FLOAT)
    result = convertkit.export(saved(tmp_path, [node, cast], rows.shape), "mnn", output=tmp_path / "out")
    ways = rows if kind == "ArgMax" else -rows
    expected = size - 1 - ways[:, ::-1].argmax(1) if last else ways.argmax(1)
    np.testing.assert_array_equal(result.run(rows)["y"], expected)


def test_zeros_of_both_signs_are_equal(tmp_path):
    nodes = [helper.make_node("Equal", ["x", "c"], ["flags"]), helper.make_node("Cast", ["flags"], ["y"], to=1)]
    path = saved(tmp_path, nodes, SIGNED.shape, c=-SIGNED)
    ports = [(TensorSpec(name, SIGNED.shape, "float32"),) for name in ("x", "y")]
    artifact = WriteMnn("float32").run(Artifact(path, "onnx", *ports, ""), tmp_path)
    with MnnRunner(artifact) as runner:
        np.testing.assert_array_equal(runner.run({"x": SIGNED})["y"], SIGNED == -SIGNED)


def test_convolutions_of_volumes_are_refused(tmp_path):
    w = RNG.standard_normal((4, 2, 3, 3, 3)).astype(np.float32)
    path = saved(tmp_path, [helper.make_node("Conv", ["x", "w"], ["y"], "conv")], (1, 2, 6, 5, 4), w=w)
    with pytest.raises(Unsupported, match="a convolution of volumes, which MNN's converter writes"):
        convertkit.export(path, "mnn", output=tmp_path / "out")


@pytest.mark.parametrize("kind", ["Gelu", "Mish"])
def test_what_mnn_approximates_is_written_out(tmp_path, kind):
    path = saved(tmp_path, [helper.make_node(kind, ["x"], ["y"])], (3, 50))
    result = convertkit.export(path, "mnn", output=tmp_path / "out")
    (output,) = result.report["steps"][-1]["parity"]["versus_previous"]["tensors"]
    assert float(output["relative"]) < 1e-5


def test_convolutions_are_exact_with_the_setting_that_the_readme_tells(tmp_path):
    """MNN's own setting is 1e-3 off here."""
    weight = (RNG.standard_normal((64, 64, 3, 3)) * 0.05).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])]
    path = saved(tmp_path, nodes, (1, 64, 28, 28), w=weight)
    result = convertkit.export(path, "mnn", output=tmp_path / "out")
    (output,) = result.report["steps"][-1]["parity"]["versus_previous"]["tensors"]
    assert float(output["relative"]) < 5e-6


def test_mnns_tools_are_not_imported():
    """They install a package by themselves and report what is converted."""
    code = "import sys, convertkit.targets.mnn.service; sys.exit('MNN.tools' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0


@pytest.mark.parametrize("cut", [0, 100, 3000])
def test_what_is_not_a_file_of_mnn_is_refused(made, tmp_path, cut):
    path = tmp_path / "model.mnn"
    path.write_bytes(made.artifact.path.read_bytes()[:cut] if cut else b"not one")
    spec = TensorSpec("input", (1, 1, 8, 8), "float32"), TensorSpec("output", (1, 10), "float32")
    with (
        pytest.raises((ToolError, WorkerError), match=r"model\.mnn"),
        MnnRunner(Artifact(path, "mnn", spec[:1], spec[1:], "")) as runner,
    ):
        runner.run({"input": np.zeros((1, 1, 8, 8), np.float32)})


def test_wrong_numbers_of_a_file_are_caught(tmp_path, monkeypatch):
    def wrong(path: Path) -> ir.Model:
        model = load_own(path)
        value = next(each for each in model.graph.initializers.values() if each.const_value.numpy().size > 100)
        value.const_value = ir.tensor(value.const_value.numpy() * np.float32(1.001), name=value.name)
        return model

    monkeypatch.setattr("convertkit.targets.mnn.stage.load_own", wrong)
    with pytest.raises(ParityError, match="after mnn"):
        convertkit.export(NETWORK, "mnn", output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_parts_that_are_not_equal_keep_their_sizes(tmp_path):
    nodes = [
        helper.make_node("Split", ["x"], ["a", "b", "c"], axis=1, num_outputs=3),
        helper.make_node("Concat", ["c", "a", "b"], ["y"], axis=1),
    ]
    path = saved(tmp_path, nodes, (2, 7))
    x = RNG.standard_normal((2, 7)).astype(np.float32)
    found = convertkit.export(path, "mnn", output=tmp_path / "out").run({"x": x})["y"]
    assert np.array_equal(found, x[:, [6, 0, 1, 2, 3, 4, 5]])


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_one_hot_counts_from_the_end_and_hits_nothing_beyond(tmp_path, axis):
    nodes = [
        helper.make_node("Cast", ["x"], ["index"], to=TensorProto.INT64),
        helper.make_node("OneHot", ["index", "depth", "values"], ["y"], axis=axis),
    ]
    stored = {"depth": np.array(4, np.int64), "values": np.array([0.25, 3.0], np.float32)}
    path = saved(tmp_path, nodes, (2, 5), **stored)
    x = np.array([[0, 1, 3, 4, -1], [-4, -5, 2, 9, 0]], np.float32)
    found = convertkit.export(path, "mnn", output=tmp_path / "out", calib={"x": x}).run({"x": x})["y"]
    assert np.array_equal(found, ort.InferenceSession(path).run(None, {"x": x})[0])


@pytest.mark.parametrize(("reduction", "end"), [("max", -np.inf), ("min", np.inf)])
def test_infinite_elements_that_no_update_hits_stay_infinite(tmp_path, reduction, end):
    """They were delivered as the largest finite number."""
    node = helper.make_node("ScatterElements", ["x", "places", "parts"], ["y"], axis=0, reduction=reduction)
    parts = RNG.standard_normal((2, 3)).astype(np.float32)
    path = saved(tmp_path, [node], (4, 3), places=np.array([[0, 1, 2], [0, 1, 3]]), parts=parts)
    x = RNG.standard_normal((4, 3)).astype(np.float32)
    x[0, 0] = x[3, 1] = x[2, 2] = end
    found = convertkit.export(path, "mnn", output=tmp_path / "out").run({"x": x})["y"]
    assert np.array_equal(found, ort.InferenceSession(path).run(None, {"x": x})[0])


@pytest.mark.parametrize("target", ["mnn", "ncnn"])
def test_an_embedding_table_stays_float_beside_integer_weights(tmp_path, target):
    """Neither looks up rows of integers."""
    if target == "ncnn":
        installed.needs("ncnn")
    nodes = [
        helper.make_node("Gather", ["table", "x"], ["row"]),
        helper.make_node("MatMul", ["row", "w"], ["y"]),
    ]
    w = RNG.standard_normal((32, 48)).astype(np.float32)
    stored = {"table": RNG.standard_normal((64, 32)).astype(np.float32), "w": w}
    path, x = saved(tmp_path, nodes, (7,), given=TensorProto.INT64, **stored), np.arange(0, 56, 8)
    found = convertkit.export(path, target, output=tmp_path / "out", w8=True).run({"x": x})["y"]
    expected = stored["table"][x] @ w
    assert 10 * np.log10((expected**2).sum() / ((found - expected) ** 2).sum()) > 30
