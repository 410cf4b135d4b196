"""Workers of the board are forks of a template, and else what a command's workers are."""

from __future__ import annotations

import os

import command_board
import command_service
import pytest
import suite
import warm

from convertkit.errors import ToolError, WorkerError
from convertkit.workers import process


@pytest.fixture
def templates(monkeypatch):
    monkeypatch.setattr(process, "launched", process.launched)
    monkeypatch.setattr(warm, "VARYING", warm.VARYING | {"PYTEST_CURRENT_TEST"})
    monkeypatch.setattr(warm, "starts", lambda target: (warm.Start(("sabotage",), None, {"WARMED": target}),))
    made = warm.Templates()
    made.start("one")
    yield made
    made.end()


def worker(target="one"):
    return process.Worker("sabotage:Sabotage", env={"WARMED": target})


def test_a_worker_is_a_fork_with_its_own_state(templates):
    with worker() as first, worker() as second:
        pids = {each.call("pid").value["pid"] for each in (first, second)}
        parents = {each.call("pid").value["parent"] for each in (first, second)}
        assert first.call("variable", {"name": "WARMED"}).value == "one"
    assert len(pids) == 2
    assert len(parents) == 1
    assert os.getpid() not in parents
    assert not pids & parents


def test_a_worker_with_other_variables_is_started_as_ever(templates):
    with worker("two") as other:
        assert other.call("pid").value["parent"] == os.getpid()
        assert other.call("variable", {"name": "WARMED"}).value == "two"


def test_errors_and_crashes_end_in_their_sentences_and_the_next_worker_serves(templates):
    with worker() as failing:
        with pytest.raises(ToolError, match="the tool said no"):
            failing.call("refuse")
        with pytest.raises(WorkerError, match="ended unexpectedly"):
            failing.call("crash")
        assert failing.call("variable", {"name": "WARMED"}).value == "one"


def test_what_a_worker_prints_is_in_its_own_log(templates):
    with worker() as one, worker() as other:
        one.call("say", {"text": "heard once"})
        other.call("pid")
        assert "heard once" in one.log
        assert "heard once" not in other.log


@pytest.mark.parametrize("target", ["mnn", "stablehlo", "qnn"])
def test_every_worker_of_a_case_is_a_fork(monkeypatch, request, tmp_path, target):
    def told(launch):
        raise AssertionError(f"{launch.command} starts a process of its own")

    for name, value in command_board.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(process, "launched", process.launched)
    command = command_service.Command()
    request.addfinalizer(command.templates.end)
    command.prepare({"targets": [target]}, {})
    monkeypatch.setattr(warm, "launched", told)
    (case,) = [each for each in suite.eligible() if each.name == "test_mul_bcast"]
    limits = suite.write((case,), tmp_path)[case.name]
    flags = command_board.INTEGERS.get(target, {})
    asked = {"folder": str(tmp_path), "name": case.name, "op": case.op, "targets": [target], "flags": flags, **limits}
    assert command.case(asked, {}).value["status"] == "right"
