"""What a mobile or a firmware team may ask for in vain: one sentence, the documented exit code, and nothing is left."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from onnx import helper

from tests import onnx_models
from tests.command_line import here
from tests.installed import needs

TARGETS = {
    "android": ["--target", "android", "--android-package", "com.example.some"],
    "ios": ["--target", "ios", "--ios-module", "Some"],
    "coreml": ["--target", "coreml"],
    "micro": ["--target", "tflite-micro"],
}
_WITHOUT = """import sys
sys.modules[sys.argv.pop(1)] = None
from convertkit.__main__ import main
sys.exit(main())
"""
LIBRARIES = {"android": "ai_edge_litert", "ios": "onnxruntime", "coreml": "coremltools", "micro": "tflite_micro"}


def asked(source: Path, target: str, *more: str) -> list[object]:
    needs(LIBRARIES[target])
    return ["export", source, *TARGETS[target], *more, "-o", "out"]


def refused(command: list[object], code: int, *words: str) -> None:
    """The command ends so, says that in one sentence, and leaves no folder."""
    said = here(*command)
    assert said.code == code, said.err
    (sentence,) = (line for line in said.err.splitlines() if line.startswith("convertkit: "))
    assert "Traceback" not in said.err
    for word in words:
        assert word in sentence
    assert sorted(path.name for path in Path().iterdir()) == []


@pytest.fixture
def classifier(root, tmp_path, monkeypatch) -> Path:
    """Ten classes; the command runs in an empty folder."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return root / "fixtures" / "digits" / "model.pt"


@pytest.mark.parametrize("target", ["android", "ios"])
def test_a_classifier_s_api_without_labels(target, classifier):
    refused(asked(classifier, target, "--postprocess", "top:3,labels"), 2, "the names of classes", "--label-file PATH")
    refused(asked(classifier, target, "--label-file", "none.txt"), 2, "none.txt: there is no such file")


@pytest.mark.parametrize(("target", "flag"), [
    ("android", "--label-file"), ("ios", "--label-file"), ("coreml", "--coreml-labels"),
])  # fmt: skip
def test_labels_of_another_number(target, flag, classifier, tmp_path):
    (tmp_path / "two.txt").write_text("cat\ndog\n")
    refused(asked(classifier, target, flag, str(tmp_path / "two.txt")), 2, "2 labels")


@pytest.mark.parametrize("target", ["coreml", "micro"])
def test_an_operator_that_the_runtime_lacks(target, classifier, tmp_path):
    """Named before anything is delivered."""
    kind = {"coreml": "DeformConv", "micro": "Det"}[target]
    if kind == "Det":
        made = onnx_models.model([helper.make_node("Det", ["x"], ["y"])], {"x": [2, 9, 9]}, {"y": [2]})
    else:
        nodes = [helper.make_node("DeformConv", ["x", "w", "o"], ["y"], kernel_shape=[2, 2])]
        inputs = {"x": [1, 1, 3, 3], "w": [1, 1, 2, 2], "o": [1, 8, 2, 2]}
        made = onnx_models.model(nodes, inputs, {"y": [1, 1, 2, 2]}, opset=19)
    refused(asked(onnx_models.write(tmp_path, made), target), 1, kind)


@pytest.mark.parametrize(("target", "missing"), [
    ("coreml", "coremltools"), ("micro", "tflite_micro"), ("android", "ai_edge_litert"),
])  # fmt: skip
def test_a_tool_that_is_not_installed(target, missing, classifier):
    """In a process of its own, which finds no such module."""
    command = [sys.executable, "-c", _WITHOUT, missing, *map(str, asked(classifier, target))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 4, done.stderr
    assert done.stderr.startswith("convertkit: ")
    assert "is not installed and this needs it; run: pip install" in done.stderr
    assert list(Path().iterdir()) == []
