"""A library that ends the process of the command with a signal: a sentence and an exit code, never silence."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests import onnx_models
from tests.command_line import everything_below

CRASHING = """
import ctypes, signal

def crash(number):
    if number == signal.SIGSEGV:
        ctypes.string_at(0)
    signal.raise_signal(number)
"""
SCRIPT = """
import os, sys, time
from convertkit.converters.onnx.source import OnnxSource
from convertkit.__main__ import main

def stage(self):
    WORK

OnnxSource.stage = stage
main()
"""


@pytest.fixture
def mlp(tmp_path: Path) -> Path:
    return onnx_models.write(tmp_path, onnx_models.mlp(), "mlp.onnx")


def running(tmp_path: Path, work: str, *arguments: object) -> subprocess.Popen[str]:
    """An export in the middle of which ``work`` is done."""
    library = tmp_path / "site-packages" / "crashing"
    library.mkdir(parents=True)
    (library / "__init__.py").write_text(CRASHING)
    path = os.pathsep.join([str(library.parent), os.environ.get("PYTHONPATH", "")])
    script = SCRIPT.replace("WORK", work)
    return subprocess.Popen(
        [sys.executable, "-P", "-c", script, "export", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path, "ORT_DISABLE_TELEMETRY": "1"},
        text=True,
    )


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE])
def test_the_library_is_named(tmp_path: Path, mlp: Path, number: int) -> None:
    place = tmp_path / "place"
    work = f"import crashing; crashing.crash({int(number)})"
    with running(tmp_path, work, mlp, "-o", place / "out") as run:
        said, complained = run.communicate(timeout=120)
    name = signal.Signals(number).name
    assert (run.returncode, said) == (1, "")
    assert complained.startswith(f"convertkit: crashing ended the process with {name} (convertkit/steps/")
    assert complained.endswith("; nothing more was written\n")
    assert len(complained.splitlines()) == 1
    assert not (place / "out").exists()


def test_a_kill_is_told_and_json_is_json(tmp_path: Path, mlp: Path) -> None:
    work = "import crashing; crashing.crash(9)"
    with running(tmp_path, work, mlp, "-o", tmp_path / "place" / "out", "--json") as run:
        said, _ = run.communicate(timeout=120)
    assert run.returncode == 1
    assert "killed, most likely for lack of memory" in json.loads(said)["error"]["message"]


def test_the_next_run_clears_up(tmp_path: Path, mlp: Path) -> None:
    place = tmp_path / "place"
    with running(tmp_path, "import crashing; crashing.crash(11)", mlp, "-o", place / "out") as run:
        run.communicate(timeout=120)
    command = [sys.executable, "-P", "-m", "convertkit", "export", str(mlp), "-o", str(place / "out")]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    assert {name for name in everything_below(place) if "/" not in name} == {"out"}


def test_nothing_outlives_a_command_that_is_killed(tmp_path: Path, mlp: Path) -> None:
    with running(tmp_path, "print(os.getpid(), flush=True); time.sleep(10**6)", mlp, "-o", tmp_path / "out") as run:
        child = int(run.stdout.readline())
        assert child != run.pid
        run.kill()
        run.communicate(timeout=60)
    until = time.monotonic() + 60
    with suppress(OSError):  # it is gone, maybe between its being opened and read
        while "State:\tZ" not in Path(f"/proc/{child}/status").read_text():
            assert time.monotonic() < until
            time.sleep(0.01)


ENDS_WITH_A_SIGNAL = """
import os, signal, sys
from convertkit.guarding import guarded

def ended(code, end=os._exit, parent=os.getpid()):
    if os.getpid() == parent:
        os.kill(parent, signal.SIGTERM)
    end(code)

os._exit = ended
guarded(print)
sys.exit(3)
"""


def test_a_signal_behind_the_end_of_the_command() -> None:
    """It is not passed on to a process that is not there any longer, or is another one by then."""
    done = subprocess.run([sys.executable, "-c", ENDS_WITH_A_SIGNAL], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (3, "", "")
