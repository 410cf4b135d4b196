"""The main export of a real model: TorchScript → ONNX → int8 QDQ → TFLite, verified on every test sample."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest

import convertkit
from convertkit import plugins
from convertkit.artifact import sha256_of
from convertkit.data.feeds import load_feeds
from convertkit.onnx.runner import OnnxRunner
from convertkit.options.flags import options_from
from convertkit.stage import BuildContext


@pytest.fixture(scope="module")
def float32(digits, tmp_path_factory):
    return convertkit.export(digits.model, "onnxruntime", output=tmp_path_factory.mktemp("float") / "onnx")


@pytest.fixture(scope="module")
def exported(digits, tmp_path_factory):
    return convertkit.export(
        digits.model,
        "tflite",
        int8=True,
        calib=digits.calib,
        eval=digits.test,
        max_drop=0.5,
        output=tmp_path_factory.mktemp("int8") / "out",
    )


@pytest.fixture(scope="module")
def qdq(digits, float32, tmp_path_factory):
    """The quantized ONNX that the TFLite target compiled from."""
    source = dataclasses.replace(float32.artifact, format="onnx")
    options = options_from({"source": str(source.path), "target": "tflite", "int8": True, "calib": str(digits.calib)})
    calibration = load_feeds(digits.calib, source.inputs)
    context = BuildContext(options, plugins.target("tflite"), calibration=calibration)
    (quantize,) = [stage for each in plugins.passes() if (stage := each.stage(context)) is not None]
    return quantize.run(source, tmp_path_factory.mktemp("qdq"))


def outputs(runner, images):
    with runner:
        return np.concatenate([next(iter(runner.run({"input": image[None]}).values())) for image in images])


def test_accuracy_and_size(exported, float32):
    evaluation = exported.report["evaluation"]
    assert evaluation["samples"] == 360
    assert evaluation["before"] >= 99.0
    assert evaluation["before"] - evaluation["after"] <= 100 / 360 + 1e-9  # one sample
    assert exported.artifact.size_bytes <= 0.30 * float32.artifact.size_bytes


def test_every_step_is_proven_against_the_previous_and_the_source(exported):
    assert [step["stage"] for step in exported.report["steps"]] == ["pytorch-to-onnx", "quantize", "tflite"]
    for step in exported.report["steps"]:
        for parity in step["parity"].values():
            assert parity["passed"]
            assert parity["feeds"] >= 8
            assert all(tensor["power"] == "ok" for tensor in parity["tensors"])


def test_the_integers_of_the_artifact_are_those_of_the_graph(digits, exported, qdq):
    oracle = outputs(OnnxRunner(qdq), digits.images)
    ours = outputs(plugins.runner(exported.artifact), digits.images)
    lsb = np.ptp(oracle) / 255  # of integers; the last layer may be float, behind them
    steps = np.abs(ours - oracle) / lsb
    assert (steps <= 1.001).mean() >= 0.99
    assert steps.max() <= 3.001
    assert (ours.argmax(1) == oracle.argmax(1)).mean() >= 0.998
    assert len(np.unique(oracle.argmax(1))) == 10  # the data reaches every class


def test_every_integer_operator_alone_is_exact(root, digits, exported, qdq, tmp_path):
    """The tool cuts every operator out and feeds it ONNX Runtime's integers, for all test samples."""
    np.savez(tmp_path / "feeds.npz", input=digits.images)
    tool = [sys.executable, root / "bench" / "tflite_exact.py", qdq.path, exported.artifact.path]
    done = subprocess.run(
        [*tool, tmp_path / "feeds.npz", "--samples", "360"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    kernels = dict(line.split(": ") for line in done.stdout.splitlines() if line.startswith("all pieces"))
    assert set(kernels) == {"all pieces, xnnpack", "all pieces, reference", "all pieces, onnxruntime"}
    for kernel in ("xnnpack", "onnxruntime"):
        differ, _, size, *_, largest, _ = kernels[f"all pieces, {kernel}"].split()
        assert (differ, largest) == ("0", "0")
        assert int(size) > 10_000 * 360
    assert kernels["all pieces, reference"].endswith(("max 0 LSB", "max 1 LSB"))
    ends = [line for line in done.stdout.splitlines() if line.startswith("end to end")]
    assert [" 100 % of outputs equal" in line for line in ends] == [True] * 3


def test_float32_tflite_is_the_same_arithmetic(digits, float32, tmp_path):
    result = convertkit.export(digits.model, "tflite", output=tmp_path / "out")
    oracle = outputs(OnnxRunner(float32.artifact), digits.images)
    ours = outputs(plugins.runner(result.artifact), digits.images)
    assert np.abs(ours - oracle).max() / np.abs(oracle).max() <= 1e-5


def test_the_same_command_twice_gives_the_same_bytes(digits, exported, tmp_path):
    again = convertkit.export(
        digits.model,
        "tflite",
        int8=True,
        calib=digits.calib,
        eval=digits.test,
        max_drop=0.5,
        output=tmp_path / "out",
    )
    assert again.artifact.sha256 == exported.artifact.sha256
    assert (again.path / "manifest.json").read_bytes() == (exported.path / "manifest.json").read_bytes()
    listed = json.loads((again.path / "manifest.json").read_text())["files"]
    assert {name: entry["sha256"] for name, entry in listed.items()} == {
        file.name: sha256_of(file)
        for file in again.path.iterdir()
        if file.name not in ("manifest.json", "report.json", "report.html")
    }


def test_the_result_runs_from_python(digits, exported):
    scores = exported.run({"input": digits.images[:1]})["output"]
    assert scores.shape == (1, 10)
    assert scores.argmax() == digits.labels[0]


def test_a_gate_that_cannot_hold_delivers_nothing(digits, answers, tmp_path):
    with pytest.raises(convertkit.errors.GateError, match="--max-drop allows"):
        convertkit.export(
            digits.model,
            "tflite",
            int8=True,
            calib=digits.calib,
            eval=answers,
            max_drop=1,
            output=tmp_path / "out",
        )
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["out.failed"]
    assert sorted(entry.name for entry in (tmp_path / "out.failed").iterdir()) == ["report.html", "report.json"]
