"""The telemetry of the runtimes is off in every process of ours."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import convertkit
from tests import installed, onnx_models
from tests.command_line import here

NOWHERE = "http://127.0.0.1:9"
"""The proxy of what these tests start, so that nothing is sent where telemetry is on."""
COMMANDS = [
    ("export", "model.onnx", "-o", "out"),
    ("export", "model.onnx", "-t", "tflite", "--jobs", "2", "--cache", "cache", "-o", "out"),
    ("inspect", "model.onnx", "--time"),
    ("bench", "model.onnx", "--seconds", "0.1"),
    ("verify", "model.onnx", "model.onnx"),
    ("verify", "delivered"),
    ("verify", "release"),
    ("reproduce", "release"),
    ("bisect", "model.onnx", "delivered"),
    ("check", "model.onnx", "-t", "onnxruntime"),
]


def home_after(words: tuple[str, ...], place: Path) -> list[str]:
    """What a new process leaves in its home, where ONNX Runtime keeps a database of events."""
    home = place / "home"
    home.mkdir()
    outside = {"ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME", "CONVERTKIT_CACHE", "CI", "TF_BUILD", "JENKINS_URL"}
    environment = {name: value for name, value in os.environ.items() if name not in outside}
    path = os.pathsep.join([str(Path(__file__).parents[1]), environment.get("PYTHONPATH", "")])
    environment |= {"HOME": str(home), "PYTHONPATH": path, "http_proxy": NOWHERE, "https_proxy": NOWHERE}
    subprocess.run([sys.executable, *words], env=environment, cwd=place, check=True, capture_output=True)
    return [str(file.relative_to(home)) for file in home.rglob("*") if file.is_file()]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A model, what an export of it delivered, and a release."""
    place = tmp_path_factory.mktemp("made")
    onnx_models.write(place, onnx_models.mlp(), "model.onnx")
    convertkit.export(place / "model.onnx", output=place / "delivered", progress=False)
    (place / "release.toml").write_text('[models.m]\nsource = "model.onnx"\n[defaults]\ntargets = ["onnxruntime"]\n')
    assert here("run", place / "release.toml", "-o", place / "release").code == 0
    return place


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_events_are_kept(made, tmp_path, words):
    shutil.copytree(made, tmp_path / "made")
    assert home_after(("-m", "convertkit", *words), tmp_path / "made") == []


def test_what_is_looked_for_is_there_without_it(made, tmp_path):
    shutil.copytree(made, tmp_path / "made")
    code = "import onnxruntime; onnxruntime.InferenceSession('model.onnx')"
    assert any("onnxruntime" in name for name in home_after(("-c", code), tmp_path / "made"))


def test_openvino_draws_no_number_for_its_user(made, tmp_path):
    installed.needs("openvino")
    for name, words in (
        ("ours", ("-m", "convertkit", "export", "model.onnx", "-t", "openvino", "-o", "ir")),
        ("bare", ("-c", "import openvino")),
    ):
        shutil.copytree(made, tmp_path / name)
        assert bool(home_after(words, tmp_path / name)) == (name == "bare")


@pytest.mark.parametrize("before", [None, "0"])
def test_the_environment_is_as_before(tmp_path, monkeypatch, before):
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY", raising=False)
    if before is not None:
        monkeypatch.setenv("ORT_DISABLE_TELEMETRY", before)
    convertkit.export(onnx_models.write(tmp_path, onnx_models.mlp()), output=tmp_path / "out", progress=False)
    assert os.environ.get("ORT_DISABLE_TELEMETRY") == before
