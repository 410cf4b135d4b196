"""What README says to paste works as pasted, one after the other."""

import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import convertkit
from tests.command_line import here

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def place(tmp_path, digits, monkeypatch):
    """A folder with the files that README's commands name, and a shell that finds the command."""
    pillow = pytest.importorskip("PIL.Image")
    work, tools = tmp_path / "work", tmp_path / "tools"
    (work / "images").mkdir(parents=True)
    tools.mkdir()
    shutil.copy(digits.model, work / "model.pt")
    shutil.copy(digits.calib, work / "calib.npz")
    for number, image in enumerate(digits.images[:24]):
        pixels = np.clip(image[0] * 255 / image.max(), 0, 255).astype(np.uint8)
        pillow.fromarray(pixels).save(work / "images" / f"{number:02d}.png")
    assert here("export", work / "model.pt", "-o", tmp_path / "onnx").code == 0
    shutil.copy(tmp_path / "onnx" / "model.onnx", work / "model.onnx")
    tool = tools / "convertkit"
    tool.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m convertkit "$@"\n')
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(work)
    return work


@pytest.mark.timeout(600)
def test_the_commands_of_use_run_in_sequence(place):
    block = re.search(r"## Use\n\n((?:    .*\n)+)", README)[1]
    script = "set -e\n" + "\n".join(line.removeprefix("    ") for line in block.splitlines())
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    folders = {path.name for path in place.iterdir() if path.is_dir()}
    assert folders == {"images", "model-tflite", "model-int8", "release", "model-tensorrt"}
    assert sorted(os.listdir(place / "release")) == ["onnxruntime", "tflite"]


def test_the_lines_of_python_run(place, digits):
    code = re.search(r"```python\n(import convertkit\n.*?)```", README, re.DOTALL)[1]
    given = {"image": digits.images[:1]}
    exec(code, given)
    assert given["outputs"]["output"].shape == (1, 10)
    assert isinstance(given["result"], convertkit.Result)


def test_the_demo_ends_as_told(tmp_path, digits):
    """Sizes, estimates, accuracy and interface, which are the same on every machine."""
    told = re.search(r"ends like this.*\n\n((?:    .*\n)+)", README)[1].splitlines()
    flags = ["--target", "tflite", "--int8", "--calib", digits.calib, "--eval", digits.test, "--max-drop", "0.5"]
    said = here("export", digits.model, *flags, "--output", tmp_path / "demo")
    assert said.code == 0, said.err
    fixed = ("tflite  int8", "size ", "estimated ", "top1 ", "input ", "output ")
    expected, found = (
        [line.strip() for line in lines if line.strip().startswith(fixed)] for lines in (told, said.out.splitlines())
    )
    assert found == expected
    assert len(expected) == 7


def test_make_demo_takes_folders_of_images_too():
    recipe = (ROOT / "Makefile").read_text().partition("$(VENV)/.ready-demo:")[2].partition("\n\n")[0]
    assert re.search(r"--editable '\.\[[\w,]*images[\w,]*\]'", recipe)


def test_no_placeholder_is_left_to_paste():
    commands = re.findall(r"^    (?!\$)(.*(?:pip|make|convertkit) .*)$", README, re.MULTILINE)
    assert len(commands) > 8
    for line in commands:
        assert not re.search(r"\b[A-Z]+_[A-Z]+\b(?!=)", line.replace("_CONVERTKIT_COMPLETE", "")), line


def test_the_page_on_python_runs(place):
    page = (ROOT / "docs" / "how-to" / "python.md").read_text(encoding="utf-8")
    given: dict[str, object] = {}
    for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(code, given)
    assert {path.name for path in place.iterdir() if path.is_dir()} == {"images", "out", "release", "watched"}
    assert [result.target for result in given["results"]] == ["onnxruntime", "tflite"]
