"""``--json`` prints one object that fulfils the published schema, however a command ends."""

import json
import os
import signal
import subprocess

import jsonschema
import pytest
from onnx import TensorProto, helper

from convertkit.report.schema import schema as report_schema
from convertkit.summary import schema
from tests import onnx_models
from tests.command_line import Said, command, here, with_path


def told(said: Said, code: int) -> dict:
    """The object, which is valid, as are the reports in it."""
    assert said.code == code, said.err
    found = json.loads(said.out)
    jsonschema.validate(found, schema(), cls=jsonschema.Draft202012Validator)
    for each in found["targets"]:
        if each.get("report") is not None:
            jsonschema.validate(each["report"], report_schema(), cls=jsonschema.Draft202012Validator)
    assert (found["exit_code"], found["passed"]) == (code, code == 0)
    assert (found["error"] is None) == (code == 0)
    return found


@pytest.fixture
def mlp(tmp_path):
    return onnx_models.write(tmp_path, onnx_models.mlp(), "mlp.onnx")


def test_success(tmp_path, mlp):
    found = told(here("export", mlp, "-o", tmp_path / "out", "--json"), 0)
    (target,) = found["targets"]
    assert (target["target"], target["artifact"]) == ("onnxruntime", str(tmp_path / "out" / "model.onnx"))


@pytest.mark.parametrize(
    ("words", "code", "kind", "says"),
    [
        (["export", "{}", "--no-such-flag", "--json"], 2, "UsageError", "--no-such-flag"),
        (["export", "--json"], 2, "UsageError", "name a SOURCE"),
        (["convert", "{}", "--json"], 2, "UsageError", "convertkit export"),
        (["export", "{}", "--int8", "--json"], 2, "UsageError", "--calib"),
        (["export", "nowhere.onnx", "--json"], 1, "SourceError", "does not exist"),
        (["export", "{}", "--target", "nothing", "--json"], 2, "UsageError", "unknown target"),
        (["targets", "--no-such-flag", "--json"], 2, "UsageError", "--no-such-flag"),
    ],
)
def test_refusals(mlp, words, code, kind, says):
    found = told(here(*[word.format(mlp) for word in words]), code)
    assert found["error"]["kind"] == kind
    assert says in found["error"]["message"]
    assert found["command"] == ("targets" if words[0] == "targets" else "export")


def test_a_failed_gate_has_its_report(tmp_path, digits, answers):
    flags = ["--int8", "--calib", digits.calib, "--eval", answers, "--max-drop", "1", "--json"]
    found = told(here("export", digits.model, *flags, "-o", tmp_path / "out"), 3)
    (target,) = found["targets"]
    assert target["folder"] == str(tmp_path / "out.failed")
    assert (target["artifact"], target["report"]["passed"]) == (None, False)
    assert found["error"] == target["error"]
    assert found["error"]["kind"] == "GateError"


def test_some_of_several(tmp_path):
    nodes = [
        helper.make_node("Cast", ["x"], ["wide"], to=TensorProto.DOUBLE),
        helper.make_node("Softmax", ["wide"], ["s"]),
        helper.make_node("Cast", ["s"], ["y"], to=TensorProto.FLOAT),
    ]
    double = onnx_models.write(tmp_path, onnx_models.model(nodes, {"x": [4, 3]}, {"y": [4, 3]}), "double.onnx")
    found = told(here("export", double, "-t", "tflite,onnxruntime", "-o", tmp_path / "out", "--json"), 1)
    assert found["error"]["kind"] == "TargetsFailed"
    assert [(each["target"], each["passed"]) for each in found["targets"]] == [("tflite", False), ("onnxruntime", True)]
    assert found["targets"][0]["error"]["kind"] == "Unsupported"
    assert found["targets"][0]["error"]["try"]


def test_what_nobody_foresaw(mlp, monkeypatch):
    def fails(*_):
        raise KeyError("x")

    monkeypatch.setattr("convertkit.job.run", fails)
    assert told(here("export", mlp, "--json"), 1)["error"]["kind"] == "InternalError"


def test_an_interruption(tmp_path, mlp):
    (tmp_path / "slow.py").write_text(
        "import sys\nimport time\n\n\n"
        "def feeds():\n    print('here', file=sys.stderr, flush=True)\n    time.sleep(100)\n"
    )
    arguments = command("export", mlp, "--calib", "slow:feeds", "-o", tmp_path / "out", "--json")
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=with_path(tmp_path), text=True
    ) as run:
        assert run.stderr.readline() == "here\n"
        os.kill(run.pid, signal.SIGTERM)
        said = Said(0, run.stdout.read(), run.stderr.read())
    assert told(Said(run.returncode, said.out, said.err), 143)["error"]["kind"] == "Interrupted"


def test_help_is_help():
    assert here("export", "--help", "--json").out == here("export", "--help").out


def test_targets():
    found = told(here("targets", "--json"), 0)
    assert {each["name"] for each in found["targets"]} >= {"onnxruntime", "tflite", "tensorrt"}
    assert {each["name"] for each in found["converters"]} >= {"onnx", "pytorch"}
