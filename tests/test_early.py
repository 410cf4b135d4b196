"""A target's file that is made of ONNX which the source still checks: of the same bytes only, and once."""

from __future__ import annotations

import dataclasses

import onnx_ir as ir
import pytest

import convertkit
from convertkit import early, pipeline, plugins
from convertkit.ahead import Ahead
from convertkit.onnx.save import save_model
from convertkit.pipeline import Pipeline
from convertkit.progress import Silent
from convertkit.recipe import ExportOptions
from tests.installed import needs
from tests.test_pipeline import WEIGHT, Stage, network, run


@pytest.fixture
def source(tmp_path):
    return save_model(ir.from_proto(network(WEIGHT)), tmp_path / "source.onnx", "")


def begun(source, *targets, **options):
    with Ahead() as ahead:
        found = early.begun(
            ExportOptions("model.pt", targets, **options),
            [plugins.target(name) for name in targets],
            source,
            "of the source",
            source.path.parent / "work",
            Silent(),
            ahead,
        )
        return found and (found, found.made())


def test_the_first_stage_of_the_target_is_run(source):
    found, made = begun(source, "onnxruntime")
    assert (found.target, found.sha256) == ("onnxruntime", source.sha256)
    assert made.artifact.path.is_relative_to(source.path.parent / "work" / "early")
    assert made.artifact.made_by.startswith(found.stages[0].name)


@pytest.mark.parametrize(
    ("targets", "options"),
    [
        (("onnxruntime", "tflite"), {}),
        (("onnxruntime",), {"static": (("N", 2),)}),
        (("onnxruntime",), {"calib": "calib.npz"}),
        (("tflite",), {"precision": "w8"}),
    ],
    ids=str,
)
def test_not_where_something_is_between(source, targets, options):
    assert begun(source, *targets, **options) is None


def test_not_where_the_target_takes_the_onnx_as_it_is(source, monkeypatch):
    monkeypatch.setattr(type(plugins.target("onnxruntime")), "stages", lambda self, context: ())
    assert begun(source, "onnxruntime") is None


def test_not_of_a_large_model(source, monkeypatch):
    monkeypatch.setattr(pipeline, "_AHEAD_BELOW_BYTES", 10)
    assert begun(source, "onnxruntime") is None


@pytest.mark.parametrize("same", [True, False], ids=["same", "another"])
def test_it_counts_for_the_same_bytes_only(source, same):
    folder = source.path.parent
    stage = Stage(lambda weight: weight * 1.0, name="target")
    with Ahead() as ahead:
        ready = ahead.begin(lambda: pipeline.made(pipeline.Task(stage, folder / "early"), source))
        told = {source.sha256 if same else "0" * 64: ready}
        then = Pipeline([stage], folder / "then", ahead=ahead, early=told)
        hub = Stage(lambda weight: weight, name="hub")
        hub.run = lambda artifact, workdir: dataclasses.replace(artifact, made_by="hub 1")
        first = Pipeline([hub], folder / "hub", ahead=ahead)
        recording = run(source, Stage(lambda weight: weight), workdir=folder / "reference").recording
        recordings = (dataclasses.replace(recording, artifact=source),) * 2
        road = first.run(source, lambda: recordings, then=then)
        after = then.run(road.artifact, lambda: recordings)
    assert after.failure is None
    assert after.artifact.path.parent == (folder / "early" if same else folder / "then" / "00-target")


@pytest.mark.parametrize("flags", [{}, {"w8": True}], ids=["float", "w8"])
def test_a_pytorch_export_makes_the_target_once(tmp_path, monkeypatch, digits, flags):
    needs("torch")
    folders = []
    plain = pipeline.made

    def noted(task, artifact):
        folders.append((task.stage.name, task.folder.parent.name))
        return plain(task, artifact)

    monkeypatch.setattr(pipeline, "made", noted)
    monkeypatch.setattr(early, "made", noted)
    convertkit.export(digits.model, target="tflite", output=tmp_path / "out", **flags)
    assert [place for name, place in folders if name == "tflite"] == (["tflite"] if flags else ["early"])
