"""The command line's promises: stdout is the result, stderr the story, and the same job in Python."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import convertkit
from convertkit import errors
from tests import onnx_models
from tests.command_line import apart, here


@pytest.fixture
def mlp(tmp_path):
    return onnx_models.write(tmp_path, onnx_models.mlp(), "mlp.onnx")


def test_result_on_stdout_and_story_on_stderr(tmp_path, mlp):
    said = here("export", mlp, "-o", tmp_path / "out")
    assert said.code == 0
    assert said.out.splitlines()[-1] == str(tmp_path / "out" / "model.onnx")
    assert "versus source" in said.out
    assert [line.split()[:2] for line in said.err.splitlines()] == [["ok", "canonical-onnx"], ["ok", "onnxruntime"]]


def test_no_progress_bars_outside_of_a_terminal(tmp_path, mlp):
    said = apart("export", mlp, "-o", tmp_path / "out")
    assert "\x1b" not in said.err + said.out
    assert "\r" not in said.err


def test_json_is_the_report(tmp_path, mlp):
    said = here("export", mlp, "-o", tmp_path / "out", "--json")
    assert json.loads(said.out) == json.loads((tmp_path / "out" / "report.json").read_text())


def test_several_targets_share_one_folder(tmp_path, mlp):
    flags = ["--target", "onnxruntime", "--target", "tflite", "--static", "N=1"]
    said = here("export", mlp, *flags, "-o", tmp_path / "out", "--json")
    assert said.code == 0, said.err
    assert [report["target"] for report in json.loads(said.out)] == ["onnxruntime", "tflite"]
    assert (tmp_path / "out" / "onnxruntime" / "model.onnx").is_file()
    assert (tmp_path / "out" / "tflite" / "model.tflite").is_file()


def test_default_output_folder(tmp_path, mlp, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert here("export", mlp, "--target", "onnxruntime").code == 0
    assert (tmp_path / "mlp-onnxruntime" / "model.onnx").is_file()


def test_recipe_says_the_same_and_flags_win(tmp_path, mlp):
    np.savez(tmp_path / "data.npz", x=np.random.default_rng(0).standard_normal((8, 5)).astype(np.float32))
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('source = "mlp.onnx"\ntarget = "tflite"\ncalib = "data.npz"\ncalib-samples = 4\n')
    said = here("export", "--recipe", recipe, "--target", "onnxruntime", "-o", tmp_path / "out")
    assert said.code == 0, said.err
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["target"] == "onnxruntime"
    assert manifest["calibration"]["samples"] == 4


def test_python_does_the_same(tmp_path, mlp):
    here("export", mlp, "-o", tmp_path / "a")
    result = convertkit.export(mlp, "onnxruntime", output=tmp_path / "b")
    assert result.path == tmp_path / "b"
    assert (tmp_path / "a" / "manifest.json").read_bytes() == (tmp_path / "b" / "manifest.json").read_bytes()
    x = np.random.default_rng(3).standard_normal((4, 5)).astype(np.float32)
    assert result.run({"x": x})["y"].shape == (4, 3)
    with pytest.raises(errors.UsageError) as refusal:
        convertkit.export(mlp, "onnxruntime", int8=True, fp16=True)
    assert refusal.value.exit_code == 2
    with pytest.raises(errors.DeliveryError):
        convertkit.export(mlp, "onnxruntime", output=tmp_path / "b")


def test_every_flag_is_a_keyword():
    flags = set(re.findall(r"--([a-z0-9-]+)", here("export", "--help").out)) - {"help", "json", "verbose", "recipe"}
    keywords = set(convertkit.export.__kwdefaults__) | {"source", "target"}
    spelled = {"pass": "passes"}  # a word that Python keeps for itself
    assert {spelled.get(flag, flag.replace("-", "_")) for flag in flags} <= keywords


def test_version():
    assert here("--version").out.strip().endswith(convertkit.__version__)


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_shell_completion_as_documented(shell):
    readme = (Path(__file__).resolve().parents[1] / "README.md").read_text()
    assert f'eval "$(_CONVERTKIT_COMPLETE={shell}_source convertkit)"' in readme
    tool = [sys.executable, "-P", "-m", "convertkit"]
    environment = {**os.environ, "_CONVERTKIT_COMPLETE": f"{shell}_source"}
    assert (
        "_convertkit_completion"
        in subprocess.run(tool, env=environment, capture_output=True, text=True, check=False).stdout
    )
    environment |= {
        "_CONVERTKIT_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": "convertkit export m.pt --target tf",
        "COMP_CWORD": "4",
    }
    assert "tflite" in subprocess.run(tool, env=environment, capture_output=True, text=True, check=False).stdout


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (EOFError("no data left"), 1, "internal error, EOFError: no data left"),
        (KeyError("x"), 1, "internal error, KeyError: 'x'"),
        (KeyboardInterrupt(), 130, "stopped; nothing was written"),
    ],
)
def test_what_nobody_foresaw_is_one_sentence(mlp, monkeypatch, error, code, told):
    def fails(*_):
        raise error

    monkeypatch.setattr("convertkit.job.run", fails)
    said = here("export", mlp)
    assert said.code == code
    assert told in said.err
    if code == 1:
        with pytest.raises(type(error)):
            here("export", mlp, "--verbose")


def test_missing_everything_is_help():
    said = here()
    assert said.code == 2
    assert "Usage: convertkit" in said.err + said.out
