"""What long commands tell while they work: on a terminal, in a log, and as JSON."""

import io
import json
import os
import pty
import re
import subprocess
import sys

import jsonschema
import pytest

from convertkit import event_log
from convertkit.console import ConsoleProgress, duration
from convertkit.progress import Silent
from convertkit.tasks.course import Course
from tests import onnx_models
from tests.command_line import apart, command, here


class Clock:
    """A time that moves when it is told to."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Listening(Silent):
    def __init__(self):
        self.told = []

    def overall(self, share, left_s):
        self.told.append((round(share, 3), left_s))


def run_task(course, clock, task, title, seconds):
    course.starts(task, title)
    clock.now += seconds
    course.ends(task)


def test_the_rest_takes_as_long_as_what_was_like_it():
    clock, heard = Clock(), Listening()
    course = Course(heard, clock)
    course.waiting({n: "quantize" if n % 2 else "compile" for n in range(8)})
    for n in range(4):
        run_task(course, clock, n, "quantize" if n % 2 else "compile", 9.0 if n % 2 else 1.0)
        course.waiting({m: "quantize" if m % 2 else "compile" for m in range(n + 1, 8)})
    course.starts(4, "compile")
    assert heard.told[-1] == (0.5, pytest.approx(20.0))


def test_parts_that_have_not_begun_take_as_long_as_others():
    clock, heard = Clock(), Listening()
    course = Course(heard, clock)
    course.expect_parts(["a", "b", "c", "kept"])
    course.part_begun("a")
    course.part_begun("a")
    course.part_begun("kept", has_tasks=False)
    for n in range(5):
        run_task(course, clock, n, "make", 2.0)
    assert heard.told[-1] == (0.333, pytest.approx(20.0))
    course.part_begun("b")
    course.waiting(dict.fromkeys(range(20), "make"))
    course.starts(99, "make")
    assert heard.told[-1][0] == 0.333, "never less than it was"
    assert heard.told[-1][1] > 20


def test_durations():
    assert [duration(each) for each in (0.2, 40, 100, 3600, 7800)] == ["1 s", "40 s", "2 min", "60 min", "2 h 10 min"]


def test_a_log_has_a_line_now_and_then(monkeypatch):
    clock, log = Clock(), io.StringIO()
    monkeypatch.setattr("sys.stderr", log)
    with ConsoleProgress(clock=clock) as console:
        console.status("quantize")
        for _ in console.track(range(100), 100, "calibrating"):
            clock.now += 1.0
        console.overall(0.5, 130.0)
        clock.now += 21
        console.status("compile")
    lines = log.getvalue().splitlines()
    assert lines == [
        "calibrating 20/100, about 80 s left",
        "calibrating 40/100, about 60 s left",
        "calibrating 60/100, about 40 s left",
        "calibrating 80/100, about 20 s left",
        "calibrating 100/100",
        "50 %, about 2 min left: compile",
    ]


def test_quiet_says_nothing(monkeypatch):
    clock, log = Clock(), io.StringIO()
    monkeypatch.setattr("sys.stderr", log)
    with ConsoleProgress(clock=clock, quiet=True) as console:
        for _ in console.track(range(100), 100, "calibrating"):
            clock.now += 1.0
        console.overall(0.5, 130.0)
        console.warn("something")
    assert not log.getvalue()


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    return onnx_models.write(tmp_path_factory.mktemp("network"), onnx_models.mlp(), "mlp.onnx")


def on_a_terminal(words, **variables):
    """What a process writes to a terminal of 200 columns."""
    ours, theirs = pty.openpty()
    env = {key: value for key, value in os.environ.items() if key not in ("CI", "NO_COLOR")}
    env |= {"TERM": "xterm-256color", "COLUMNS": "200", **variables}
    with subprocess.Popen(words, stderr=theirs, stdout=subprocess.DEVNULL, env=env) as process:
        os.close(theirs)
        written = b""
        while True:
            try:
                written += os.read(ours, 1 << 16)
            except OSError:  # the other side is closed
                break
    os.close(ours)
    assert process.returncode == 0
    return written.decode()


LONG = """
import time
from convertkit.console import ConsoleProgress
with ConsoleProgress() as console:
    console.status("quantize")
    console.overall(0.42, 130.0)
    for _ in console.track(range(4), 4, "calibrating"):
        time.sleep(0.2)
"""


def test_a_terminal_shows_stage_percentage_and_time():
    seen = on_a_terminal([sys.executable, "-c", LONG])
    assert re.search(r"quantize .*42 %.*about 2 min left", seen)
    assert re.search(r"calibrating .*3/4", seen)


COLOUR = re.compile(r"\x1b\[[\d;]*(?:3[0-7]|38;|9[0-7])[\d;]*m")


def test_no_color_and_quiet_on_a_terminal(network, tmp_path):
    assert COLOUR.search(on_a_terminal([sys.executable, "-c", LONG]))
    plain = on_a_terminal(command("export", network, "-o", tmp_path / "plain"), NO_COLOR="1")
    assert "ok   onnxruntime" in plain
    assert not COLOUR.search(plain)
    assert on_a_terminal(command("export", network, "-q", "-o", tmp_path / "quiet")) == ""


def events(said):
    """The lines of a log, each of them valid."""
    check = jsonschema.Draft202012Validator(event_log.schema())
    found = [json.loads(line) for line in said.err.splitlines()]
    for each in found:
        check.validate(each)
    assert [each["event"] for each in found].count("end") == 1
    assert found[-1]["event"] == "end"
    assert found[-1]["exit_code"] == said.code
    return found


@pytest.fixture(scope="module")
def release(network, tmp_path_factory):
    """A release of two cells, and what its run has told."""
    folder = tmp_path_factory.mktemp("release")
    recipe = folder / "r.toml"
    recipe.write_text(f'[models.net]\nsource = "{network}"\ntargets = ["onnxruntime", "tflite"]\n')
    return folder / "out", apart("run", recipe, "-o", folder / "out", "--log-json")


def test_run_tells_each_cell(release):
    _, said = release
    found = events(said)
    assert found[0]["command"] == "run"
    cells = {each["cell"]: each["passed"] for each in found if each["event"] == "cell"}
    assert cells == {"net:onnxruntime:float32": True, "net:tflite:float32": True}
    assert any(each["event"] == "stage" for each in found)
    assert said.out.strip().endswith("out")


@pytest.mark.parametrize("name", ["verify", "reproduce"])
def test_of_a_release(release, name):
    folder, _ = release
    said = here(name, folder, "--log-json")
    found = events(said)
    assert (said.code, found[0]["command"]) == (0, name)
    wanted = ("replaying golden vectors", 2) if name == "verify" else ("net:tflite:float32", None)
    assert wanted in {(each.get("stage") or each.get("cell"), each.get("total")) for each in found}


@pytest.mark.parametrize("name", ["verify", "bisect"])
def test_of_two_models(release, name):
    folder, _ = release
    said = here(name, folder / "net/onnxruntime-float32/model.onnx", folder / "net/tflite-float32", "--log-json")
    stages = {each["stage"] for each in events(said) if each["event"] in ("stage", "progress")}
    assert said.code == 0
    assert {"opening", "running model.onnx"} <= stages
    assert ("comparing values" in stages) is (name == "bisect")


def test_export_tells_steps_and_how_it_fails(network, tmp_path):
    found = events(here("export", network, "-o", tmp_path / "out", "--log-json"))
    assert [(each["target"], each["passed"]) for each in found if each["event"] == "step"] == [
        ("onnxruntime", True), ("onnxruntime", True),
    ]  # fmt: skip
    end = events(here("export", network, "-o", tmp_path / "out", "--log-json"))[-1]
    assert end["error"]["kind"] == "DeliveryError"
    assert "--force" in " ".join(end["error"]["try"] + [end["error"]["message"]])
    end = events(here("export", network, "--log-json", "--int9"))[-1]
    assert (end["exit_code"], end["error"]["kind"]) == (2, "UsageError")
    only = events(here("export", network, "-o", tmp_path / "more", "--log-json", "-q"))
    assert [each["event"] for each in only] == ["end"]
