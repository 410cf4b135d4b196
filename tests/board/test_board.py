"""Small functions whose numbers hang on epsilons, neutral constants, ties and limits, behind every target.

Each framework says once what its functions give on the edge inputs, in a process of its own.  Groups of functions are
exported by the command; each function is an output, so that a fault has its name.  The delivered files are run here.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.board.judge import delivered, wrong
from tests.command_line import here

ROOT = Path(__file__).resolve().parents[2]
TARGETS = ("tflite", "onnxruntime", "tensorrt")
REFUSES = {("jax", "integers"): "tensorrt"}
"""TensorRT's parser has no BitCast, and 8-bit integers at inputs and outputs alone."""
GROUPS = {
    "torch": ("logarithms", "norms", "neutral", "powers", "turns", "limits"),
    "tensorflow": ("logarithms", "norms", "neutral", "powers"),
    "jax": ("logarithms", "norms", "neutral", "powers", "limits", "integers"),
}
ROUNDED_AT_ONE = frozenset({"elu", "selu", "celu"})
"""ONNX Runtime's kernels of these compute ``exp(x) - 1``, whose rounding is that of 1, where x is all but 0."""
_FLOOR = 2.0**-22
LEAST = {"torch": 110, "tensorflow": 45, "jax": 60}
"""How many functions are there: a board that shrinks proves less."""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folder of what each framework says, made when it is first asked for."""
    return {framework: tmp_path_factory.mktemp(framework) for framework in GROUPS}


def _answers(framework: str, folder: Path) -> Path:
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    if not any(folder.iterdir()):
        command = [sys.executable, "-m", "tests.board.reference", framework, str(folder)]
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, check=True, capture_output=True)
    return folder


@pytest.mark.parametrize(("framework", "group"), [(each, group) for each in GROUPS for group in GROUPS[each]])
def test_every_function_says_the_same_on_every_edge(
    framework: str, group: str, said: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    folder = _answers(framework, said[framework])
    source = (
        folder / f"tensorflow-{group}" if framework == "tensorflow" else f"tests.board.{framework}_functions:{group}"
    )
    targets = [each for each in TARGETS if each != REFUSES.get((framework, group))]
    flags = [flag for target in targets for flag in ("--target", target)]
    result = here("export", source, "--input", "x:4,16", *flags, "--output", tmp_path / "out")
    assert result.code == 0, result.complaint
    known = dict(np.load(folder / f"{framework}-{group}.npz"))
    names = {key.split("|")[0] for key in known}
    faults = []
    for target in targets:
        floor = {name: _FLOOR for name in ROUNDED_AT_ONE if target != "tflite"}
        for edge, outputs in delivered(target, tmp_path / "out" / target):
            assert set(outputs) == names
            for name in sorted(names):
                single, double = (known[f"{name}|{edge}|{kind}"] for kind in ("float32", "float64"))
                if told := wrong(outputs[name], single, double, floor.get(name, 0.0)):
                    faults.append(f"{target}: {name} on {edge} {told}")
    assert not faults


@pytest.mark.parametrize("framework", GROUPS)
def test_the_board_is_as_wide_as_it_says(framework: str) -> None:
    text = (Path(__file__).with_name(f"{framework}_functions.py")).read_text(encoding="utf-8")
    assert sum(line.startswith('    "') and '": ' in line for line in text.splitlines()) >= LEAST[framework]


def test_the_judge_sees_what_was_found_on_the_way() -> None:
    """A lost epsilon, a lost sign, a lost NaN and a third of a per cent are faults; a rounding is none."""
    x = np.array([0.0, 1e-6, 1.0])
    said, truth = np.log(x * x + 1e-10).astype(np.float32), np.log(x * x + 1e-10)
    with np.errstate(divide="ignore"):
        assert wrong(np.log(x * x).astype(np.float32), said, truth) == "an infinity that the framework has not"
    assert wrong((said * 1.003).astype(np.float32), said, truth).startswith("off by")
    assert wrong(np.where(x == 0, np.nan, said).astype(np.float32), said, truth) == "other infinities or NaN"
    assert wrong(-np.array([np.pi], np.float32), np.array([np.pi], np.float32), np.array([np.pi])).startswith("off by")
    assert not wrong(np.nextafter(said, np.float32(9)), said, truth)
