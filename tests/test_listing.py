"""``convertkit targets`` says what is there, and what adds the rest."""

import importlib.metadata
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from convertkit import plugins
from convertkit.errors import DISTRIBUTION
from convertkit.listing import PACKAGES, everything
from convertkit.stage import WithEngine, WithExtra
from tests import onnx_models
from tests.command_line import apart, here

ROOT = Path(__file__).resolve().parents[1]

HIDDEN = """
import importlib.metadata as metadata
import sys
real = metadata.version
def version(name):
    if name in {hidden}:
        raise metadata.PackageNotFoundError(name)
    return real(name)
metadata.version = version
from convertkit import cli
cli.main({words})
"""


def without(hidden, *words):
    """The command in an environment in which these packages are not installed."""
    script = HIDDEN.format(hidden=set(hidden), words=list(words))
    return subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True).stdout


def test_what_is_missing_is_said_with_the_command_that_adds_it():
    lines = without(["ai-edge-litert", "torch"], "targets").splitlines()
    tflite = next(line for line in lines if line.startswith("  tflite "))
    assert f"missing ai-edge-litert: pip install '{DISTRIBUTION}[tflite]'" in tflite
    torch = next(line for line in lines if line.startswith("  pytorch "))
    assert f"missing torch: pip install '{DISTRIBUTION}[torch]'" in torch
    assert "onnxruntime 1." in next(line for line in lines if line.startswith("  onnxruntime "))
    listed = {each["name"]: each for each in json.loads(without(["torch"], "targets", "--json"))["converters"]}
    assert (listed["pytorch"]["installed"], listed["pytorch"]["packages"]["torch"]) == (False, None)
    assert (listed["onnx"]["installed"], listed["onnx"]["install"]) == (True, None)


@pytest.mark.parametrize("build", ["tensorflow-cpu", "tensorflow", None])
def test_one_of_two_builds_is_enough(monkeypatch, build):
    def version(name):
        if name in ("tensorflow-cpu", "tensorflow") and name != build:
            raise importlib.metadata.PackageNotFoundError(name)
        return "2.0"

    monkeypatch.setattr(importlib.metadata, "version", version)
    found = next(each for each in everything()["converters"] if each.name == "tensorflow")
    assert found.installed == (build is not None)
    assert next(iter(found.packages)) == (build or "tensorflow-cpu")


def test_versions_are_those_that_are_installed():
    from importlib.metadata import version

    said = here("targets").out
    assert f"ai-edge-litert {version('ai-edge-litert')}" in said
    assert max(map(len, said.splitlines())) <= 120


def test_every_plugin_of_ours_names_its_extra():
    names = ("android", "coreml", "ethos-u", "ios", "onnxruntime", "openvino", "ort-mobile", "tensorrt", "tflite")
    names += ("tflite-micro", "qnn", "executorch", "genai", "litert-lm", "stablehlo", "mnn", "ncnn")
    ours = [*map(plugins.target, names)]
    ours += [each for each in plugins.converters() if type(each).__module__.startswith("convertkit.")]
    for each in ours:
        if isinstance(each, WithEngine):
            assert plugins.engine(each.engine).name == each.engine
            continue
        assert isinstance(each, WithExtra), each.name
        assert each.extra in PACKAGES


def test_packages_are_those_of_the_extras():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {**project["optional-dependencies"], "core": project["dependencies"]}
    for extra, packages in PACKAGES.items():
        wanted = " ".join(extras[extra])
        inner = re.search(r"convertkit-ml\[(.*)\]", wanted)
        wanted += " ".join(each for name in (inner[1].split(",") if inner else ()) for each in extras[name])
        for names in packages:
            assert all(name in wanted for name in names), (extra, names)


def test_a_plugin_of_somebody_else_is_there_when_it_is_listed(acme):
    said = apart("targets", "--json", env=acme)
    listed = {each["name"]: each for each in json.loads(said.out)["targets"]}
    assert (listed["c-header"]["installed"], listed["c-header"]["packages"]) == (True, {})


def test_an_export_says_what_is_missing_before_the_source_is_converted(tmp_path):
    model = onnx_models.write(tmp_path, onnx_models.mlp(), "mlp.onnx")
    words = ["export", str(model), "-t", "tflite", "-o", str(tmp_path / "out")]
    script = f"import sys; sys.modules['ai_edge_litert'] = None; from convertkit import cli; cli.main({words!r})"
    said = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=False)
    assert said.returncode == 4
    assert f"pip install '{DISTRIBUTION}[tflite]'" in said.stderr
    assert "canonical-onnx" not in said.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mlp.onnx"]
