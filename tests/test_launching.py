"""The worker's process that is started before flags are read: taken where it is the one that is wanted, or ended."""

from __future__ import annotations

import contextvars

import pytest

from convertkit.workers import launching
from convertkit.workers.launching import TORCH_ENVIRONMENT, Launch, Launched, discard, foresee, launched
from convertkit.workers.process import Worker


@pytest.fixture(autouse=True)
def ended(monkeypatch):
    """All that was ended on the way; nothing is foreseen before a test, and nothing runs on after it."""
    plain, started, stopped = launching._started, [], []
    monkeypatch.setattr(launching, "_started", lambda launch: started.append(plain(launch)) or started[-1])
    monkeypatch.setattr(launching, "_SPARE", contextvars.ContextVar("spare", default=None))
    stop = Launched.stop
    monkeypatch.setattr(Launched, "stop", lambda self: (stop(self), stopped.append(self)))
    yield stopped
    for each in started:
        stop(each)
        each.log.close()


def wanted():
    return Launch.of("torch", TORCH_ENVIRONMENT)


def test_what_was_foreseen_is_taken_once(monkeypatch):
    foresee(["export", "model.pt", "--target", "tflite"])
    spare = launching._SPARE.get()
    assert launched(wanted()) is spare
    assert launched(wanted()) is not spare
    assert spare.process.poll() is None


@pytest.mark.parametrize("other", [("torch", {"TORCH_CPP_LOG_LEVEL": "INFO"}), ("jax", TORCH_ENVIRONMENT)], ids=str)
def test_where_another_is_wanted_it_is_ended(ended, other):
    foresee(["export", "model.pt"])
    assert launched(Launch.of(*other)).launch == Launch.of(*other)
    assert [each.launch for each in ended] == [wanted()]


def test_one_that_has_ended_is_not_taken(ended):
    foresee(["export", "model.pt"])
    dead = launching._SPARE.get()
    dead.process.kill()
    dead.process.wait()
    assert launched(wanted()) is not dead


@pytest.mark.parametrize(
    "arguments", [["export", "model.onnx"], ["targets"], ["inspect", "model.pt"], ["export"], []], ids=str
)
def test_what_names_no_pytorch_file_starts_nothing(arguments):
    foresee(arguments)
    assert launching._SPARE.get() is None


def test_what_was_not_taken_is_ended(ended):
    foresee(["export", "model.pt"])
    discard()
    discard()
    assert [each.process.wait(20) for each in ended] == [-9]


def test_a_worker_serves_from_it(monkeypatch, tmp_path):
    (tmp_path / "ahead_service.py").write_text(
        "import os\nfrom convertkit.workers.process import Reply\n"
        "class Service:\n    def pid(self, params, arrays):\n        return Reply(os.getpid())\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    foresee(["export", "model.pt"])
    spare = launching._SPARE.get()
    with Worker("ahead_service:Service", timeout_s=60, framework="torch", env=TORCH_ENVIRONMENT) as worker:
        assert worker.call("pid").value == spare.process.pid
    assert spare.process.wait(20) == -9
