"""One failing target of several does not throw away what the others made."""

import json
import os

import numpy as np
import pytest
from onnx import TensorProto, helper

import convertkit
from convertkit.errors import ParityError, TargetsFailed, Unsupported
from convertkit.job import Outcome, failure
from tests import onnx_models
from tests.command_line import apart, everything_below, here


@pytest.fixture
def double(tmp_path):
    """A model with an operator in a dtype for which TFLite has no kernel."""
    nodes = [
        helper.make_node("Cast", ["x"], ["wide"], to=TensorProto.DOUBLE),
        helper.make_node("Softmax", ["wide"], ["s"]),
        helper.make_node("Cast", ["s"], ["y"], to=TensorProto.FLOAT),
    ]
    return onnx_models.write(tmp_path, onnx_models.model(nodes, {"x": [4, 3]}, {"y": [4, 3]}), "double.onnx")


@pytest.mark.parametrize("order", [["onnxruntime", "tflite"], ["tflite", "onnxruntime"]])
def test_the_others_are_delivered(tmp_path, double, order):
    flags = [word for name in order for word in ("--target", name)]
    said = here("export", double, *flags, "-o", tmp_path / "out")
    assert said.code == 1
    assert said.out.splitlines()[-1] == str(tmp_path / "out" / "onnxruntime" / "model.onnx")
    assert "failed: tflite; delivered: onnxruntime in " in said.complaint
    assert "tflite: " in said.complaint
    assert "Softmax" in said.complaint
    assert os.listdir(tmp_path / "out") == ["onnxruntime"]
    manifest = json.loads((tmp_path / "out" / "onnxruntime" / "manifest.json").read_text())
    assert (tmp_path / "out" / "onnxruntime" / "model.onnx").stat().st_size == manifest["artifact"]["bytes"]


def test_python_gets_what_was_delivered_with_the_error(tmp_path, double):
    options = convertkit.ExportOptions(str(double), ("tflite", "onnxruntime"), str(tmp_path / "out"))
    with pytest.raises(TargetsFailed) as refusal:
        convertkit.export_all(options)
    assert refusal.value.exit_code == 1
    assert list(refusal.value.failures) == ["tflite"]
    assert refusal.value.delivered == {"onnxruntime": str(tmp_path / "out" / "onnxruntime")}


def test_all_that_fail_are_told_without_each_other_as_ways_out():
    ways = ("--target onnxruntime", "--target openvino", "--target onnxruntime-like")
    ways += ("--target onnxruntime, for Triton with --package triton", "--target onnxruntime --package triton")
    first = Unsupported("no kernel", subject="a", ways_out=ways)
    outcomes = [Outcome("tflite", error=first), Outcome("onnxruntime", error=ParityError("differs"))]
    failed = failure(outcomes)
    assert str(failed).splitlines() == [
        "failed: tflite, onnxruntime; nothing is delivered",
        "tflite: a: no kernel",
        "  try   --target openvino",
        "  try   --target onnxruntime-like",
        "onnxruntime: differs",
    ]
    assert failed.exit_code == 1


def test_one_failure_that_all_share_is_told_once():
    outcomes = [Outcome(name, error=ParityError("differs")) for name in ("tflite", "onnxruntime")]
    failed = failure(outcomes)
    assert (type(failed), str(failed), failed.exit_code) == (ParityError, "differs", 3)


def test_one_refusal_that_all_share_does_not_name_them_as_ways_out():
    refusal = Unsupported("draws numbers", subject="a", ways_out=("--target onnxruntime", "--allow-unverified"))
    assert str(failure([Outcome(name, error=refusal) for name in ("tflite", "onnxruntime")])).splitlines() == [
        "a: draws numbers",
        "  try   --allow-unverified",
    ]
    assert failure([Outcome("tflite", error=refusal)]).ways_out == refusal.ways_out


def test_a_failed_proof_of_one_is_exit_3(tmp_path, acme):
    source = tmp_path / "model.acme"
    rows = np.random.default_rng(5).standard_normal((5, 6))
    lines = ["#acme 1", "dense 5 6", *(" ".join(f"{number:.6f}" for number in row) for row in rows)]
    source.write_text("\n".join(lines) + "\n")
    flags = ["--target", "c-header-wrong", "--target", "onnxruntime", "-o", tmp_path / "out"]
    for force in ([], ["--force"]):
        said = apart("export", source, *flags, *force, env=acme)
        assert said.code == 3, said.err
        assert "failed: c-header-wrong; delivered: onnxruntime" in said.complaint
        assert {name for name in everything_below(tmp_path / "out") if "/" not in name} == {
            "onnxruntime",
            "c-header-wrong.failed",
        }


def test_a_source_that_fails_fails_for_all(tmp_path):
    source = tmp_path / "cut.onnx"
    source.write_bytes(onnx_models.mlp().SerializeToString()[:100])
    said = here("export", source, "--target", "onnxruntime", "--target", "tflite", "-o", tmp_path / "out")
    assert (said.code, said.out) == (1, "")
    assert "cut.onnx" in said.complaint
    assert everything_below(tmp_path) == {"cut.onnx"}


def test_what_lies_beside_the_targets_stays(tmp_path, double):
    (tmp_path / "out" / "notes").mkdir(parents=True)
    (tmp_path / "out" / "notes" / "mine.txt").write_text("precious")
    flags = ["--target", "onnxruntime", "--target", "tensorrt", "-o", tmp_path / "out"]
    for force in ([], ["--force"]):
        said = here("export", double, *flags, *force)
        assert said.code == 0, said.err
    assert sorted(os.listdir(tmp_path / "out")) == ["notes", "onnxruntime", "tensorrt"]
    assert (tmp_path / "out" / "notes" / "mine.txt").read_text() == "precious"
