"""Noise along a model, time by node, and the command that an export is."""

from __future__ import annotations

import dataclasses
import math
import shlex
from pathlib import Path

import numpy as np
import pytest
from onnx import helper, numpy_helper

import convertkit
from convertkit.artifact import Artifact, TensorSpec, sha256_of
from convertkit.commands.export import command as export_command
from convertkit.findings.command import command
from convertkit.findings.depth import along_depth
from convertkit.options.flags import options_from
from convertkit.recipe import ExportOptions
from convertkit.report import layers
from tests.onnx_models import mlp, model, write


def chain(folder: Path, wrong_from: int) -> Artifact:
    """Ten additions of 1, the later ones by a little more."""
    folder.mkdir()
    nodes = [helper.make_node("Add", [f"v{i}", f"c{i}"], [f"v{i + 1}"]) for i in range(10)]
    stored = [numpy_helper.from_array(np.float32(1 + 0.1 * (i >= wrong_from)), f"c{i}") for i in range(10)]
    made = model(nodes, {"v0": ["N", 5]}, {"v10": ["N", 5]}, stored)
    for index in range(1, 10):
        made.graph.value_info.append(helper.make_tensor_value_info(f"v{index}", 1, ["N", 5]))
    path = write(folder, made)
    specs = [(TensorSpec(name, ("N", 5), "float32"),) for name in ("v0", "v10")]
    return Artifact(path, "onnx", *specs, sha256_of(path))


def test_noise_is_seen_where_it_comes_in(tmp_path) -> None:
    feed = {"v0": np.random.default_rng(0).standard_normal((1, 5)).astype(np.float32)}
    found = along_depth(chain(tmp_path / "a", 10), chain(tmp_path / "b", 4), feed)
    assert [level.name for level in found] == [f"v{i}" for i in range(1, 11)]
    assert all(level.snr_db == math.inf for level in found[:4])
    assert all(level.snr_db < 45 for level in found[4:])


def test_values_that_one_graph_alone_has_are_left_out(tmp_path) -> None:
    shorter = chain(tmp_path / "b", 4)
    renamed = shorter.path.read_bytes().replace(b"v7", b"w7")
    shorter.path.write_bytes(renamed)
    feed = {"v0": np.ones((1, 5), np.float32)}
    found = along_depth(chain(tmp_path / "a", 10), shorter, feed)
    assert [level.name for level in found] == [f"v{i}" for i in range(1, 11) if i != 7]


def test_a_picture_of_depth_shows_what_is_exact_above_the_rest() -> None:
    levels = [{"name": f"v{i}", "kind": "Add", "snr_db": level} for i, level in enumerate(["inf", 40.0, 10.0, "-inf"])]
    found = layers.depth(levels)
    assert found is not None
    assert [place.low for place in found.values] == [False, False, True]
    assert found.values[0].y == 0
    assert found.values[0].label == "v0 (Add): equal"
    assert found.bounds == (10.0, 45.0)
    assert layers.depth(levels[:1]) is None


@pytest.mark.parametrize(("target", "told"), [("onnxruntime", True), ("tflite", False), ("tensorrt", False)])
def test_times_are_told_where_the_runtime_tells_them(tmp_path, target, told) -> None:
    made = convertkit.export(write(tmp_path, mlp()), target, output=tmp_path / "out")
    times = made.report["times"]
    assert bool(times) == told
    assert all(each["ms"] >= 0 and each["kind"] for each in times)


def test_a_lossy_export_tells_its_noise_by_depth(digits, tmp_path) -> None:
    made = convertkit.export(digits.model, "tflite", w8=True, output=tmp_path / "out")
    found = made.report["depth"]
    assert len(found) >= 5
    assert found[-1]["name"] == "output"
    assert '<circle class="dot' in (tmp_path / "out" / "report.html").read_text()
    plain = convertkit.export(digits.model, output=tmp_path / "plain")
    assert plain.report["depth"] == []


GIVEN = {
    "source": "some/where/model.onnx",
    "target": "tflite",
    "int8": True,
    "full_integer": True,
    "strict": True,
    "calib": "data/photos",
    "eval": "data/test set.npz",
    "max_drop": 0.5,
    "images": "crop:0.875,bicubic,bgr",
    "wav": "rate:16000,mono,window:1s,hop:400",
    "normalization": ["x:127.5/127.5", "y:1,2,3/4,5,6"],
    "input": ["ids:1,64:int64[0,1000)", "x:N,3"],
    "static": {"N": 4},
    "trust": ["pickle"],
    "timeout": 3.5,
    "passes": ["acme"],
    "seed": 3,
}


def test_the_command_says_what_was_asked_for() -> None:
    """Read again, it gives the same options; files by their own names."""
    options = options_from(GIVEN)
    words = shlex.split(command(options, "tflite"))
    assert words[:5] == ["convertkit", "export", "model.onnx", "--target", "tflite"]
    parsed = export_command.make_context("export", words[2:]).params
    given = {name: value for name, value in parsed.items() if name not in ("recipe", "as_json")}
    again = options_from({name: value for name, value in given.items() if value not in (None, False, ())})
    assert dataclasses.replace(options, source="model.onnx", calib="photos", eval="test set.npz") == again


def test_every_choice_is_in_the_command() -> None:
    """A field that is added to the options is told, or left out on purpose."""
    fields = {field.name for field in dataclasses.fields(ExportOptions)}
    told = set(command(options_from(GIVEN), "tflite").split())
    left_out = {"source", "targets", "output", "precision", "verbose", "force", "keep_failed"}
    renamed = {"inputs": "input", "timeout_s": "timeout", "passes": "pass"}
    flags = {"--" + renamed.get(name, name).replace("_", "-") for name in fields - left_out}
    ours = {"--" + name.replace("_", "-") for name in GIVEN} | {"--pass"}
    assert flags & ours <= told


def test_a_model_that_onnx_runtime_does_not_load_has_no_times(tmp_path) -> None:
    from convertkit.onnx.profiling import node_times

    made = model([helper.make_node("Odd", ["x"], ["y"], domain="no.such")], {"x": ["N", 5]}, {"y": ["N", 5]})
    made.opset_import.append(helper.make_opsetid("no.such", 1))
    path = write(tmp_path, made)
    artifact = Artifact(path, "onnxruntime", (TensorSpec("x", ("N", 5), "float32"),), (), sha256_of(path))
    assert node_times(artifact, {"x": np.zeros((1, 5), np.float32)}, tmp_path) == ()


def test_a_large_model_is_timed_alone(tmp_path, monkeypatch) -> None:
    from convertkit.findings import measure

    monkeypatch.setattr(measure, "_LARGEST_BASELINE", 100)
    made = convertkit.export(write(tmp_path, mlp()), w8=True, output=tmp_path / "out")
    assert made.report["latency"]["float32_ms"] is None
    assert made.report["latency"]["artifact_ms"] > 0
