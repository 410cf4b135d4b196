"""A worker's crash, death or hang is one sentence in the parent; its results arrive unharmed."""

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from convertkit.artifact import Artifact, TensorSpec
from convertkit.errors import ToolError, Unsupported, Untrusted, WorkerError
from convertkit.workers.messages import is_complete, send
from convertkit.workers.process import Worker
from convertkit.workers.runner import OpenedRunner
from convertkit.workers.running import PlacedRunner

HERE = Path(__file__).parent


class ReturnedRunner(PlacedRunner):
    """Of an artifact whose outputs are its inputs."""

    runtime = "a test"

    def _begun(self):
        return Worker("worker_service:Returned", timeout_s=20)

    def _load(self, worker):
        pass


@pytest.fixture
def worker(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    with Worker("worker_service:Service", timeout_s=20) as running:
        yield running


def test_values_and_arrays_come_back(worker):
    arrays = {
        "a": np.arange(6, dtype=np.int16).reshape(2, 3),
        "scalar": np.float32(1.5).reshape(()),
        "empty": np.zeros((0, 4)),
        "bf16": np.ones(3, ml_dtypes.bfloat16),
        "strided": np.arange(12.0).reshape(3, 4).T,
    }
    reply = worker.call("echo", {"k": [1, "two", None]}, arrays)
    assert reply.value == {"k": [1, "two", None], "calls": 1}
    for name, value in arrays.items():
        assert reply.arrays[name].dtype == value.dtype
        np.testing.assert_array_equal(reply.arrays[name], value * 2)
    assert "chatter" in worker.log


def test_sets_have_the_same_order_in_every_worker(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    orders = []
    for _ in range(2):
        with Worker("worker_service:Service", timeout_s=20) as running:
            orders.append(running.call("order").value)
    assert orders[0] == orders[1]


@pytest.mark.parametrize("value", [np.float32(3.0).reshape(()), np.arange(6.0).reshape(2, 3).T])
def test_an_opened_model_gets_its_inputs_as_they_are(worker, value):
    inputs = (TensorSpec("x", value.shape, value.dtype.name),)
    outputs = (TensorSpec("y", value.shape, value.dtype.name), TensorSpec("shape", (value.ndim,), "int64"))
    artifact = Artifact(Path("model"), "test", inputs, outputs, "")
    with OpenedRunner(worker, artifact) as runner:
        found = runner.run({"x": value, "other": value})
    np.testing.assert_array_equal(found["y"], value + 1)
    assert tuple(found["shape"]) == value.shape
    assert list(found) == ["y", "shape"]


def test_the_collector_runs_seldom_and_leaves_out_what_the_import_made(worker):
    assert worker.call("collector").value == [True, True, True]


def test_isolated_calls_leave_no_state_behind(worker):
    counts = [worker.call("echo", isolated=isolated).value["calls"] for isolated in (False, True, True, False)]
    assert counts == [1, 2, 2, 2]


@pytest.mark.parametrize(
    ("method", "says"),
    [
        ("crash", "crashed with SIGSEGV"),
        ("out_of_memory", "was killed, most likely for lack of memory"),
        ("leave", "ended unexpectedly with exit code 7"),
        ("fail", "ZeroDivisionError: division by zero"),
        ("too_much", "ran out of memory"),
    ],
)
@pytest.mark.parametrize("isolated", [False, True])
def test_deaths_become_sentences(worker, method, says, isolated):
    with pytest.raises(WorkerError, match=says) as caught:
        worker.call(method, isolated=isolated)
    assert "\n" not in str(caught.value)
    assert worker.call("echo").value["calls"] == 1  # the worker, or a new one, answers again


def test_a_worker_that_ended_between_calls_is_a_sentence(worker):
    worker.call("leave_later")
    assert worker._process.wait(60) == 7
    with pytest.raises(WorkerError, match="ended unexpectedly with exit code 7"):
        worker.call("echo")


def test_a_hang_is_stopped(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    with Worker("worker_service:Service", timeout_s=2) as running:
        running.start()
        process = running._process
        with pytest.raises(WorkerError, match="longer than 2 s"):
            running.call("hang")  # takes ten minutes
        assert process.wait(60) == -signal.SIGKILL


@pytest.mark.parametrize("cut", [0, 4, 20, -1])
def test_a_message_is_complete_with_its_last_byte(cut):
    stream = io.BytesIO()
    send(stream, {"value": 1}, {"a": np.zeros((2, 3), np.int16), "b": np.zeros((), np.float32)})
    assert is_complete(stream.getvalue())
    assert not is_complete(stream.getvalue()[:cut])


def test_a_started_worker_imports_its_service_before_it_is_called(monkeypatch, tmp_path):
    imported = tmp_path / "imported"
    (tmp_path / "early_service.py").write_text(
        "from pathlib import Path\nfrom worker_service import Service\nPath(__file__).with_name('imported').touch()\n"
    )
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.syspath_prepend(str(tmp_path))
    with Worker("early_service:Service", timeout_s=20) as running:
        running.start()
        until = time.monotonic() + 20
        while not imported.exists():
            assert time.monotonic() < until
            time.sleep(0.01)
        assert running.call("echo").value["calls"] == 1


def test_a_framework_is_imported_before_anything_of_ours(monkeypatch, tmp_path):
    (tmp_path / "slow_framework.py").write_text(
        "import sys\nprint('noise')\nFIRST = not {'numpy', 'convertkit.workers.process'} & set(sys.modules)\n"
    )
    (tmp_path / "framed_service.py").write_text(
        "import slow_framework\nfrom convertkit.workers.process import Reply\n"
        "class Service:\n    def first(self, params, arrays):\n        return Reply(slow_framework.FIRST)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with Worker("framed_service:Service", timeout_s=20, framework="slow_framework") as running:
        assert running.call("first").value is True
        assert "noise" in running.log


def test_a_missing_framework_is_told_as_the_service_tells_it(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    with Worker("worker_service:Service", framework="no_such_framework") as running:
        assert running.call("echo").value["calls"] == 1


def test_our_errors_keep_their_class_and_parts(worker):
    with pytest.raises(Unsupported) as caught:
        worker.call("refuse")
    assert (caught.value.reason, caught.value.location) == ("no such kernel", "model.py:41")
    assert caught.value.ways_out == ("--a", "--b")
    with pytest.raises(Untrusted, match="it holds code"):
        worker.call("distrust")


def test_an_unknown_service_is_a_sentence():
    with Worker("no_such_module:Service") as running, pytest.raises(WorkerError, match="no_such_module"):
        running.call("echo")


def test_the_worker_dies_with_its_parent(tmp_path):
    script = (
        f"import sys, time; sys.path.insert(0, {str(HERE)!r})\n"
        "from convertkit.workers.process import Worker\n"
        "worker = Worker('worker_service:Service')\n"
        "print(worker.call('pid').value, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        pid = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
                return
        except OSError:  # it is gone, maybe between its being opened and read
            return
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    pytest.fail("the worker outlived its parent")


def test_a_call_waits_for_what_was_begun(worker):
    """Both pipes are full of data at once; whoever reads none would stop the other."""
    large = np.arange(1_000_000)
    pending = worker.begin("echo", {"k": 0}, {"a": large}, isolated=True)
    assert worker.call("echo", {"k": 9}, {"a": large}).value["k"] == 9
    assert pending().value["k"] == 0


@pytest.mark.parametrize(
    ("made", "declared", "fits"),
    [
        ("float32", "float32", True),
        ("int8", "uint8", True),
        ("int8", "bool", True),
        ("int32", "int64", False),
        ("float64", "float32", False),
        ("float32", "int32", False),
    ],
)
def test_outputs_are_of_the_types_that_the_artifact_declares(monkeypatch, made, declared, fits):
    """But for integers without a sign and flags in bytes; anything else would lie about the file."""
    monkeypatch.syspath_prepend(str(HERE))
    given = np.array([0, 1, 1], made)
    inputs, outputs = (TensorSpec("x", (3,), made),), (TensorSpec("y", (3,), declared),)
    with ReturnedRunner(Artifact(Path("model"), "test", inputs, outputs, "")) as runner:
        if fits:
            found = runner.run({"x": given})["y"]
            assert found.dtype == declared
            np.testing.assert_array_equal(found, given.astype(declared))
            return
        with pytest.raises(ToolError, match=f"^output y comes as {made}, and the artifact says {declared}$"):
            runner.run({"x": given})
