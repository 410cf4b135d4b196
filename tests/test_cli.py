"""The command line's promises: stdout is the result, stderr progress and messages, and the same job in Python."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pytest
from click.shell_completion import ShellComplete

import convertkit
from convertkit import errors, plugins
from convertkit.cli import cli
from convertkit.commands import COMMANDS
from convertkit.commands import command as load_command
from convertkit.commands.export import command as export_command
from convertkit.options.declared import GroupedOption
from convertkit.options.export_command import GROUPS
from tests import installed, onnx_models
from tests.command_line import apart, command, here


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


def test_json_holds_the_report(tmp_path, mlp):
    said = here("export", mlp, "-o", tmp_path / "out", "--json")
    (target,) = json.loads(said.out)["targets"]
    assert target["report"] == json.loads((tmp_path / "out" / "report.json").read_text())


def test_several_targets_share_one_folder(tmp_path, mlp):
    flags = ["--target", "onnxruntime", "--target", "tflite", "--static", "N=1"]
    said = here("export", mlp, *flags, "-o", tmp_path / "out", "--json")
    assert said.code == 0, said.err
    assert [each["target"] for each in json.loads(said.out)["targets"]] == ["onnxruntime", "tflite"]
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
    flags = set(re.findall(r"--([a-z0-9-]+)", here("export", "--help").out)) - {
        "help",
        "json",
        "verbose",
        "recipe",
        "quiet",
        "log-json",
    }
    keywords = set(convertkit.export.__kwdefaults__) | {"source", "target"}
    spelled = {"pass": "passes"}  # a word that Python keeps for itself
    targets = tuple(f"{name}-" for name in plugins.target_names())
    brought = {flag for flag in flags if flag.startswith(targets)}
    assert brought, "what targets bring is in target_options"
    assert {spelled.get(flag, flag.replace("-", "_")) for flag in flags - brought} <= keywords


HELP = ["-h", "--help"]


@pytest.mark.parametrize("name", [each.name for each in COMMANDS])
def test_every_command_shows_examples(name):
    """One that is a group shows those of the commands below it."""
    found = load_command(name)
    every = found.commands.values() if isinstance(found, click.Group) else [found]
    for each in every:
        context = click.Context(each, info_name=each.name, help_option_names=HELP)  # click keeps the first ones it sees
        assert "Examples:" in each.get_help(context), each.name
        assert "convertkit " in each.get_help(context).partition("Examples:")[2]


@pytest.mark.parametrize(("other", "ours"), [("compare", "diff"), ("benchmark", "bench"), ("validate", "verify")])
def test_commands_of_other_tools_are_answered(other, ours):
    said = here(other, "a", "b")
    assert said.code == 2
    assert f"did you mean 'convertkit {ours}'" in said.err


def test_version():
    assert here("--version").out.strip().endswith(convertkit.__version__)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completion_as_documented(shell):
    page = (Path(__file__).resolve().parents[1] / "docs" / "how-to" / "install.md").read_text()
    ours = f"_CONVERTKIT_COMPLETE={shell}_source convertkit"
    assert (f"{ours} | source" if shell == "fish" else f'eval "$({ours})"') in page
    tool = [sys.executable, "-P", "-m", "convertkit"]
    environment = {**os.environ, "_CONVERTKIT_COMPLETE": f"{shell}_source"}
    assert (
        "_convertkit_completion"
        in subprocess.run(tool, env=environment, capture_output=True, text=True, check=False).stdout
    )
    environment |= {
        "_CONVERTKIT_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": "convertkit export m.pt --target tf",
        "COMP_CWORD": "tf" if shell == "fish" else "4",
    }
    assert "tflite" in subprocess.run(tool, env=environment, capture_output=True, text=True, check=False).stdout


_IN_SHELLS = {
    "bash": """eval "$(_CONVERTKIT_COMPLETE=bash_source convertkit)"
        COMP_WORDS=(convertkit run --lo); COMP_CWORD=2; _convertkit_completion convertkit; echo "${COMPREPLY[@]}"
        COMP_WORDS=(convertkit ex); COMP_CWORD=1; _convertkit_completion convertkit; echo "${COMPREPLY[@]}" """,
    "zsh": """autoload -Uz compinit && compinit -u -D; eval "$(_CONVERTKIT_COMPLETE=zsh_source convertkit)"
        compadd() { echo ${(P)${@[-1]}}; }; _describe() { echo ${(P)3}; }  # what the editor's functions are given
        words=(convertkit run --lo); CURRENT=3; ${_comps[convertkit]}
        words=(convertkit ex); CURRENT=2; ${_comps[convertkit]}""",
    "fish": """_CONVERTKIT_COMPLETE=fish_source convertkit | source
        complete -C "convertkit run --lo"; complete -C "convertkit ex" """,
}


@pytest.mark.parametrize("shell", _IN_SHELLS)
def test_a_shell_completes(shell, tmp_path):
    """What a user sees who has done as the page says; zsh and fish are looked for."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    tool = tmp_path / "convertkit"
    tool.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m convertkit "$@"\n')
    tool.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "HOME": str(tmp_path)}
    quietly = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    said = subprocess.run(
        [shell, *quietly, "-c", _IN_SHELLS[shell]], env=environment, capture_output=True, text=True, check=False
    )
    assert "--log-json" in said.stdout, said.stderr
    assert "export" in said.stdout


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


def test_help_is_in_groups_with_examples_that_are_taken():
    said = here("export", "--help").out
    places = [
        said.index(f"\n{group}:") for group in ("Input", "Precision", "Data", "Verification", "Output", "Examples")
    ]
    assert places == sorted(places)
    unwrapped = " ".join(said.split())
    assert re.search(r"-t, --target T android, .*onnxruntime, .*tflite.*\[default: onnxruntime\]", unwrapped)
    examples = re.findall(r"^  convertkit export (.*)$", said, re.MULTILINE)
    assert len(examples) == 3
    for example in examples:
        export_command.make_context("export", example.split())


def test_every_flag_stands_in_one_group():
    flags = {each.name for each in export_command.params if not isinstance(each, click.Argument)}
    assert {each.name for each in export_command.params if isinstance(each, GroupedOption)} == flags
    assert {each.group for each in export_command.params if isinstance(each, GroupedOption)} == set(GROUPS)


def test_quiet_is_the_path_alone(tmp_path, mlp):
    said = here("export", mlp, "-o", tmp_path / "out", "-q")
    assert (said.code, said.err) == (0, "")
    assert said.out == f"{tmp_path / 'out' / 'model.onnx'}\n"
    said = here("export", mlp, "-o", tmp_path / "out", "-q")
    assert (said.code, said.out) == (1, "")
    assert "not empty" in said.err


@pytest.mark.parametrize(
    ("flag", "begun", "values"),
    [
        ("--calib-method", "perc", {"percentile", "percentile-99.99"}),
        ("--io-dtype", "", {"float32", "int8", "uint8", "int16"}),
        ("--metric", "t", {"top1"}),
        ("--input-layout", "n", {"nchw", "nhwc"}),
        ("--trust", "p", {"pickle", "pyfunc"}),
        ("--images", "crop,b", {"crop,bilinear", "crop,bicubic", "crop,bgr"}),
        ("--target", "onnxruntime,tf", {"onnxruntime,tf-serving", "onnxruntime,tflite", "onnxruntime,tflite-micro"}),
    ],
)
def test_values_are_completed(flag, begun, values):
    complete = ShellComplete(cli, {}, "convertkit", "_CONVERTKIT_COMPLETE")
    assert {each.value for each in complete.get_completions(["export", "m.onnx", flag], begun)} == values


def in_terminal(tmp_path, *words, **environment):
    """What one sees whose stdout and stderr are the same terminal."""
    master, end = os.openpty()
    seen = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", **environment}
    seen.pop("CI", None)
    with subprocess.Popen(command(*words), stdin=end, stdout=end, stderr=end, env=seen, cwd=tmp_path):
        os.close(end)
        parts = []
        while True:
            try:
                part = os.read(master, 65536)
            except OSError:
                break
            if not part:
                break
            parts.append(part)
    os.close(master)
    return b"".join(parts).decode()


def test_a_terminal_shows_each_step_once_and_the_path_in_colour(tmp_path, mlp):
    said = in_terminal(tmp_path, "export", mlp, "-o", "out")
    assert said.count("ok   canonical-onnx") == said.count("canonical-onnx       ") == 1
    assert "versus source" not in said
    assert "\x1b[32m\x1b[1mout/model.onnx\x1b[0m" in said
    refused = in_terminal(tmp_path, "export", mlp, "-o", "out")
    assert "\x1b[31m\x1b[1mconvertkit:\x1b[0m out exists" in refused


def test_a_terminal_shows_what_opening_a_pytorch_model_does(digits, tmp_path):
    installed.needs("torch")
    said = in_terminal(tmp_path, "export", digits.model, "-o", "out")
    assert "importing torch and loading model.pt" in said
    piped = apart("export", digits.model, "-o", tmp_path / "piped")
    assert piped.code == 0
    assert "importing torch" not in piped.err + piped.out


def test_no_color_is_respected(tmp_path, mlp):
    said = in_terminal(tmp_path, "export", mlp, "-o", "out", NO_COLOR="1")
    said += in_terminal(tmp_path, "export", mlp, "-o", "out", NO_COLOR="1")
    assert "out/model.onnx" in said
    assert not re.search(r"\x1b\[(?:3\d|9\d|38;[\d;]+)m", said)
