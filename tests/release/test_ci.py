"""What pipelines read and run: JUnit XML, the summary, the action, the component, the image."""

import os
import re
import shlex
import stat
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import yaml

from convertkit.commands import command
from convertkit.release.ci import junit, markdown
from convertkit.release.gates import Verdict
from convertkit.release.result import CellResult, Release
from tests import onnx_models
from tests.command_line import here

ROOT = Path(__file__).resolve().parents[2]
ACTION = ROOT / "ci" / "github" / "action.yml"
COMPONENT = ROOT / "ci" / "gitlab" / "convertkit.yml"


def cell(model, precision, **more):
    plain = {"name": f"{model}:tflite:{precision}", "model": model, "target": "tflite", "precision": precision}
    return CellResult(**{**plain, "required": True, "passed": True, "seconds": 1.5, **more})


BAD = cell("b", "int8", passed=False, error="size: 3 bytes | <b>\nmore\0", kind="GateError", code=3,
           verdicts=(Verdict("size", 1, 3, False, "size: 3 bytes"),))  # fmt: skip
SPARE = cell("b", "w8", passed=False, required=False, error="no kernel", kind="Unsupported", code=1)
GOOD = cell("a", "float32", size_bytes=12_000, latency_ms=0.5, metric="top1", accuracy=98.25, change={"size": 0.5})
RELEASE = Release(Path("release.failed"), "two", False, (GOOD, BAD, SPARE))


def test_junit_has_a_case_for_each_cell():
    root = ElementTree.fromstring(junit(RELEASE))
    suites = {suite.get("name"): suite for suite in root}
    assert (suites["b"].get("tests"), suites["b"].get("failures"), suites["b"].get("skipped")) == ("2", "1", "1")
    failed, spare = suites["b"]
    assert (failed.get("classname"), failed.get("name")) == ("b", "tflite:int8")
    assert failed.find("failure").get("message") == "size: 3 bytes | <b>"
    assert failed.find("failure").get("type") == "GateError"
    assert failed.find("system-out").text == "size: 3 bytes"
    assert spare.find("failure") is None
    assert spare.find("skipped") is not None
    assert suites["a"][0].get("time") == "1.500"


def test_the_summary_is_a_table_that_holds_together():
    lines = markdown(RELEASE).splitlines()
    rows = [line for line in lines if line.startswith("| ")]
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 7 for row in rows)
    assert rows[1] == "| a:tflite:float32 | passed | 12.0 kB | 0.500 ms | top1 98.25 | size × 0.5 |"
    assert "    size: 3 bytes | <b>" in lines, "an error stands as code, in which nothing means anything"


@pytest.fixture
def recipe(tmp_path):
    onnx_models.write(tmp_path, onnx_models.mlp(1), "one.onnx")
    (tmp_path / "recipe.toml").write_text('[models."a/one"]\nsource = "one.onnx"\n')
    return tmp_path / "recipe.toml"


def test_both_are_written_however_a_run_ends(recipe, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "step.md"))
    assert here("run", recipe, "--junit", tmp_path / "of" / "junit.xml").code == 0
    assert "### recipe: published, 1 of 1 cells passed" in (tmp_path / "step.md").read_text()
    recipe.write_text(recipe.read_text() + "gates = { size = 1 }\n")
    assert here("run", recipe, "--force", "--junit", tmp_path / "j.xml", "--summary", tmp_path / "own.md").code == 3
    assert ElementTree.parse(tmp_path / "j.xml").getroot()[0].get("failures") == "1"
    assert "**withheld**" in (tmp_path / "own.md").read_text()
    assert "withheld" not in (tmp_path / "step.md").read_text()


def shim(folder):
    """A command ``convertkit`` on the path, and a pip that installs nothing."""
    for name, text in (("convertkit", f'exec {shlex.quote(sys.executable)} -P -m convertkit "$@"'), ("pip", "exit 0")):
        file = folder / name
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


def evaluated(value, inputs):
    """An expression of an action's environment, of which there are only inputs."""
    return re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: inputs[found[1]], str(value))


def test_the_action_runs_as_written(recipe, tmp_path):
    action = yaml.safe_load(ACTION.read_text())
    assert action["runs"]["using"] == "composite"
    key = subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519"], capture_output=True, text=True, check=True)
    given = {"recipe": "recipe.toml", "only": "a/*:onnxruntime", "signing-key": key.stdout}
    inputs = {name: given.get(name, str(each.get("default", ""))) for name, each in action["inputs"].items()}
    (tmp_path / "bin").mkdir()
    (tmp_path / "outputs").touch()
    for step in action["runs"]["steps"]:
        if "run" not in step:
            assert re.fullmatch(r"actions/[\w-]+@v\d+", step["uses"])
            continue
        assert "${{" not in step["run"], "an input in a script is code that somebody else writes"
        own = {name: evaluated(value, inputs) for name, value in step.get("env", {}).items()}
        env = {**os.environ, **shim(tmp_path / "bin"), **own, "GITHUB_OUTPUT": str(tmp_path / "outputs")}
        done = subprocess.run(
            ["bash", "-c", step["run"]], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "outputs").read_text() == "release=release\n"
    assert (tmp_path / "release" / "SHA256SUMS.sig").is_file()
    assert (tmp_path / "release.junit.xml").is_file()


def test_the_component_runs_as_written(recipe, tmp_path):
    header, jobs = yaml.safe_load_all(COMPONENT.read_text())
    inputs = {name: (each or {}).get("default", "recipe.toml") for name, each in header["spec"]["inputs"].items()}
    text = re.sub(r"\$\[\[ inputs\.(\w+) \]\]", lambda found: inputs[found[1]], COMPONENT.read_text().split("---\n")[1])
    (job,) = yaml.safe_load(text).values()
    assert set(jobs) == {"convertkit-release"}
    (tmp_path / "bin").mkdir()
    variables = {name: value.replace("$CI_PROJECT_DIR", str(tmp_path)) for name, value in job["variables"].items()}
    env = {**os.environ, **shim(tmp_path / "bin"), **variables}
    script = "set -e\n" + "\n".join(job["script"])
    done = subprocess.run(["sh", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "release" / "index.html").is_file()
    assert job["artifacts"]["reports"]["junit"] == "release.junit.xml"


def test_the_image_is_built_of_what_there_is():
    """Each instruction is one of Docker's, and what is copied exists; the command is the container's."""
    text = re.sub(r"\\\n\s*", " ", (ROOT / "ci" / "Dockerfile").read_text())
    lines = [line.split(None, 1) for line in text.splitlines() if line and not line.startswith("#")]
    known = {"FROM", "ARG", "COPY", "RUN", "USER", "WORKDIR", "ENTRYPOINT", "CMD"}
    assert {line[0] for line in lines} <= known
    assert lines[0][0] == "FROM"
    for name, rest in lines:
        if name == "COPY" and "--from" not in rest:
            assert (ROOT / rest.split()[0]).exists()
        if name == "RUN":
            assert subprocess.run(["sh", "-n", "-c", rest], check=False).returncode == 0
    assert dict(lines)["ENTRYPOINT"] == '["convertkit"]'
    assert "USER" in dict(lines)


@pytest.mark.parametrize("file", [ACTION, COMPONENT])
def test_flags_in_the_files_are_flags_of_the_command(file):
    known = {word for each in command("run").params for word in each.opts}
    for found in re.findall(r"(?:words=\(run|words\+=\(|convertkit run) ?([^\n)]*)", file.read_text()):
        assert set(re.findall(r"--[\w-]+", found)) <= known
