"""Context binaries for Qualcomm's NPU: executed in its simulator, whole or refused, the same bytes in every run."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import convertkit
from convertkit import plugins
from convertkit.artifact import Artifact, TensorSpec, sha256_of
from convertkit.errors import FeedError, ParityError, ToolError, Unsupported
from convertkit.onnx.edit import add_constant
from convertkit.onnx.unsigned import make_unsigned
from convertkit.report.schema import schema
from convertkit.result import Result
from convertkit.targets.qnn.devices import SOCS
from convertkit.targets.qnn.pairs import place_pairs
from convertkit.targets.qnn.stage import CompileContext
from tests.command_line import check_refusal, here

NETWORK, CALIBRATION, TEST = (f"fixtures/digits/{name}" for name in ("model.pt", "calib.npz", "test.npz"))
INTEGERS = {"int8": True, "full_integer": True, "calib": CALIBRATION}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """The digits network, with its accuracy on some samples: the simulator takes 50 ms for each."""
    place = tmp_path_factory.mktemp("made")
    np.savez(place / "some.npz", **{name: values[:60] for name, values in np.load(TEST).items()})
    return convertkit.export(NETWORK, "qnn", eval=str(place / "some.npz"), output=place / "out", **INTEGERS)


def test_the_delivered_binary_is_executed_in_the_simulator(made):
    jsonschema.validate(made.report, schema())
    assert (made.report["execution"], made.report["runs_here"], made.report["latency"]) == ("simulated", False, None)
    assert "HTP simulator" in made.report["steps"][-1]["artifact"]["runtime"]
    assert "simulated, not run on the device" in (made.path / "report.html").read_text()
    assert float(made.report["quality"]["snr_db"]) > 35
    assert made.report["evaluation"]["drop"] <= 0.3


def test_every_node_is_in_the_binary(made):
    model = onnx.load(made.artifact.path)
    assert [node.op_type for node in model.graph.node] == ["EPContext"]
    binary = made.path / "model_qnn.bin"
    assert made.artifact.size_bytes == made.artifact.path.stat().st_size + binary.stat().st_size
    assert {path.name for path in made.path.iterdir()} == {
        "model.onnx", "model_qnn.bin", "README.md", "manifest.json", "report.json", "report.html"
    }  # fmt: skip


def test_two_runs_write_the_same_bytes(made, tmp_path):
    again = convertkit.export(NETWORK, "qnn", output=tmp_path / "elsewhere", **INTEGERS)
    for name in ("model.onnx", "model_qnn.bin"):
        assert sha256_of(made.path / name) == sha256_of(again.path / name), name


def test_a_binary_of_another_model_is_not_run(made, tmp_path):
    shutil.copytree(made.path, tmp_path / "copy")
    moved = replace(made.artifact, path=tmp_path / "copy" / "model.onnx")
    binary = tmp_path / "copy" / "model_qnn.bin"
    binary.write_bytes(binary.read_bytes()[:-1] + b"?")
    with pytest.raises(ToolError, match=r"model_qnn.bin is not the file that was written with model.onnx"):
        plugins.runner(moved).__enter__()
    binary.unlink()
    with pytest.raises(ToolError, match="no context binary that lies beside it"):
        plugins.runner(moved).__enter__()


def test_another_batch_does_not_fit(made):
    with (
        plugins.runner(made.artifact) as runner,
        pytest.raises(FeedError, match=r"the shape \(2, 1, 8, 8\), the binary"),
    ):
        runner.run({"input": np.zeros((2, 1, 8, 8), np.float32)})


def graph(folder: Path, kind: str, shape: list[int]) -> Artifact:
    """One float operator."""
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "y")]
    nodes = [helper.make_node(kind, ["x"], ["y"], "odd")]
    made = helper.make_graph(nodes, "g", ports[:1], ports[1:])
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 19)], ir_version=9), folder / "m.onnx")
    specs = [TensorSpec(name, tuple(shape), "float32") for name in ("x", "y")]
    return Artifact(folder / "m.onnx", "onnx", tuple(specs[:1]), tuple(specs[1:]), "")


def rounded(folder: Path) -> Artifact:
    """A Relu between int8 values."""
    source = graph(folder, "Relu", [1, 8])
    model = onnx.load(source.path)
    scale, zero = numpy_helper.from_array(np.float32(0.01), "s"), numpy_helper.from_array(np.int8(3), "z")
    model.graph.initializer.extend([scale, zero])
    kinds = ("QuantizeLinear", "DequantizeLinear", "Relu", "QuantizeLinear", "DequantizeLinear")
    names = ["x", "a", "b", "c", "d", "y"]
    del model.graph.node[:]
    for place, kind in enumerate(kinds):
        inputs = [names[place]] if kind == "Relu" else [names[place], "s", "z"]
        model.graph.node.append(helper.make_node(kind, inputs, [names[place + 1]], f"n{place}"))
    onnx.save(model, source.path)
    return source


def test_what_the_npu_does_not_take_is_named(tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(Unsupported, match=r"odd \(Erf\): the NPU does not take it") as refusal:
        CompileContext("sm8650").run(graph(tmp_path, "Erf", [1, 8]), tmp_path / "out")
    assert "--target onnxruntime" in refusal.value.ways_out


def test_each_chip_gets_a_binary_that_runs(tmp_path):
    source = rounded(tmp_path)
    value = np.linspace(-1, 1, 8, dtype=np.float32).reshape(1, 8)
    for soc, chip in SOCS.items():
        (tmp_path / soc).mkdir()
        artifact = CompileContext(soc).run(source, tmp_path / soc)
        with plugins.runner(artifact) as runner:
            np.testing.assert_allclose(runner.run({"x": value})["y"], np.maximum(value, 0), atol=0.01)
        assert f"HTP v{chip.arch}" in (tmp_path / soc / "README.md").read_text()
    assert len({sha256_of(tmp_path / soc / "model_qnn.bin") for soc in SOCS}) > 3


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ((), "--full-integer"),
        (("--full-integer", "--qnn-soc", "sm1"), "sm8650"),
        (("--static", "N=1"), "--full-integer"),
    ],
)
def test_what_does_not_fit_ends_it_before_any_work(flags, said, tmp_path):
    words = ("export", NETWORK, "-t", "qnn", "--int8", "--calib", CALIBRATION, "-o", tmp_path / "out", *flags)
    check_refusal(here(*words), 2, said)
    assert not (tmp_path / "out").exists()


def test_without_the_execution_provider_nothing_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr("convertkit.targets.qnn.find_spec", lambda name: None)
    words = ("export", NETWORK, "-t", "qnn", "--int8", "--full-integer", "--calib", CALIBRATION)
    check_refusal(here(*words, "-o", tmp_path / "out"), 4, "onnxruntime-qnn is not installed")
    assert not any(tmp_path.iterdir())


def test_wrong_numbers_of_the_binary_are_caught(tmp_path, monkeypatch):
    """The binary is of a model whose first activations have twice their scale."""

    def wrong(model: ir.Model) -> int:
        first = next(node for node in model.graph if node.op_type == "DequantizeLinear" and node.inputs[0].producer())
        scale = first.inputs[1].const_value.numpy()
        first.replace_input_with(1, add_constant(model.graph, "twice", 2 * scale, separator=""))
        return make_unsigned(model)

    monkeypatch.setattr("convertkit.targets.qnn.stage.make_unsigned", wrong)
    with pytest.raises(ParityError, match="after qnn"):
        convertkit.export(NETWORK, "qnn", output=tmp_path / "out", **INTEGERS)
    assert not (tmp_path / "out").exists()


def test_a_model_that_came_quantized_keeps_its_integers(tmp_path, monkeypatch):
    """In TensorRT's form, which needs a pair in front of every Relu."""
    signed = convertkit.export(NETWORK, "tensorrt", int8=True, calib=CALIBRATION, output=tmp_path / "signed")
    made = convertkit.export(signed.artifact.path, "qnn", output=tmp_path / "out", **INTEGERS)
    (output,) = made.report["steps"][-1]["parity"]["versus_source"]["tensors"]
    assert float(output["snr_db"]) > 35
    monkeypatch.setattr("convertkit.targets.qnn.stage.place_pairs", lambda model: 0)
    with pytest.raises(Unsupported, match=r"the NPU does not take it in this form, and \d+ more"):
        convertkit.export(signed.artifact.path, "qnn", output=tmp_path / "refused", **INTEGERS)


@pytest.mark.parametrize("zero", [-128, 0, 3])
def test_a_pair_in_front_of_a_relu_changes_nothing(zero, tmp_path):
    """Compared by the reference evaluator, beyond the range on both sides."""
    source = graph(tmp_path, "Relu", [1, 301])
    model = onnx.load(source.path)
    scale, point = numpy_helper.from_array(np.float32(0.037), "s"), numpy_helper.from_array(np.int8(zero), "z")
    model.graph.initializer.extend([scale, point])
    kinds = {"Neg": "x a", "Relu": "a b", "QuantizeLinear": "b s z q", "DequantizeLinear": "q s z y"}
    del model.graph.node[:]
    for kind, names in kinds.items():
        *inputs, output = names.split()
        model.graph.node.append(helper.make_node(kind, inputs, [output], kind))
    paired = ir.from_proto(model)
    assert place_pairs(paired) == 1
    value = np.linspace(-11, 11, 301, dtype=np.float32).reshape(1, 301)
    before, after = (ReferenceEvaluator(each).run(None, {"x": value}) for each in (model, ir.to_proto(paired)))
    np.testing.assert_array_equal(before, after)
    assert place_pairs(paired) == 0


def test_near_ties_are_as_near_as_was_measured():
    """What the stage states is rounded up from the page, to a hundredth of a step."""
    page = Path("docs/measurements/rounding.md").read_text(encoding="utf-8")
    far = max(float(line.split("|")[4]) for line in page.splitlines() if line.startswith("| qnn |"))
    assert far <= CompileContext.tolerance.near_ties < far + 0.01
