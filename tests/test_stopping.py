"""A signal that stops the command is heard wherever the command is."""

import os
import signal
import subprocess
import sys

import pytest

from tests import onnx_models
from tests.command_line import command, everything_below

BEGINS = """
import os, signal, sys, time
from contextlib import contextmanager
from convertkit.stopping import Stopping

number = int(sys.argv[1])
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # `nohup` ignores it
stopping = Stopping()
stopping.listen()

def stop():
    os.kill(os.getpid(), number)
    time.sleep(60)

"""
ENDS = """
except KeyboardInterrupt:
    print("stopped by", stopping.number)
stopping.over()
time.sleep(0.3)
"""
FINALIZED = """
class Finalized:
    def __init__(self, rest):
        self.rest = rest

    def __del__(self):
        if self.rest == "fails":
            raise ValueError("not a stop")
        stop()

try:
    Finalized("fails")
    Finalized("stops")
    time.sleep(60)
"""
CUT_OFF = """
def imported():
    try:
        stop()
    except KeyboardInterrupt as error:
        raise ImportError("initialization failed") from error

try:
    try:
        imported()
    except ImportError:
        pass
    time.sleep(60)
"""
CLEARS_UP = """
@contextmanager
def folder():
    try:
        yield
    finally:
        time.sleep(0.3)
        print("cleared up")

try:
    try:
        with folder():
            stop()
    except KeyboardInterrupt as error:
        time.sleep(0.3)
        raise RuntimeError("what click makes of it") from error
    finally:
        time.sleep(0.3)
        os.kill(os.getpid(), number)  # of somebody who does not want to wait
        print("once")
except RuntimeError as error:
    raised = error
    stopping.over()
    print("stopped by", stopping.number)
    time.sleep(0.3)
"""
REMOVES = """
import shutil, tempfile
from pathlib import Path

class Slow(type(Path())):
    def __fspath__(self):
        if not heard:
            heard.append(1)
            os.kill(os.getpid(), number)
            time.sleep(0.2)
        return super().__fspath__()

heard = []
place = Path(tempfile.mkdtemp())
(place / "file").touch()
try:
    shutil.rmtree(Slow(place))
    time.sleep(60)
"""
WORKS = """
from pathlib import Path
from convertkit.delivery import workspaces

def made(place, make=workspaces._made):
    path = make(place)
    os.kill(os.getpid(), number)
    time.sleep(0.2)
    return path

workspaces._made = made
try:
    with workspaces.workspace(Path(sys.argv[2]) / "out"):
        time.sleep(60)
"""
NUMBERS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


def said(script, number, *more):
    words = [sys.executable, "-c", script, str(int(number)), *map(str, more)]
    return subprocess.run(words, check=False, capture_output=True, text=True, timeout=50)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_while_python_finalizes_an_object(number):
    """Python tells of an error there and goes on: the command would never end."""
    done = said(BEGINS + FINALIZED + ENDS, number)
    assert done.stdout == f"stopped by {int(number)}\n"
    assert "not a stop" in done.stderr
    assert "KeyboardInterrupt" not in done.stderr


def test_a_signal_that_a_library_takes_for_an_error():
    done = said(BEGINS + CUT_OFF + ENDS, signal.SIGTERM)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"stopped by {signal.SIGTERM:d}\n", "")


@pytest.mark.parametrize("number", NUMBERS)
def test_what_clears_up_is_not_disturbed(number):
    done = said(BEGINS + CLEARS_UP, number)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"cleared up\nonce\nstopped by {int(number)}\n", "")


def test_a_folder_that_is_being_removed_goes():
    done = said(BEGINS + REMOVES + ENDS + "print(place.exists())", signal.SIGTERM)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"stopped by {signal.SIGTERM:d}\nFalse\n", "")


def test_a_folder_of_work_that_is_being_made_goes(tmp_path):
    done = said(BEGINS + WORKS + ENDS, signal.SIGINT, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"stopped by {signal.SIGINT:d}\n", "")
    assert not everything_below(tmp_path)


def test_after_the_end_a_signal_ends_the_process_at_once():
    done = said(BEGINS + "stopping.over()\nstop()", signal.SIGTERM)
    assert (done.returncode, done.stderr) == (-signal.SIGTERM, "")


BEFORE = """
import os, signal, sys, time

class Asked:
    def find_spec(self, name, path, target=None):
        if name == "convertkit.cli":
            os.kill(os.getpid(), int(sys.argv[1]))
            time.sleep(60)

signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
sys.meta_path.insert(0, Asked())
from convertkit.__main__ import main
main()
"""


@pytest.mark.parametrize("number", NUMBERS)
def test_before_the_command_has_begun_it_ends_without_a_word(number):
    done = said(BEFORE, number)
    assert (done.returncode, done.stdout, done.stderr) == (-number, "", "")


FEEDS = """
import os, signal, time
import numpy as np

def feeds():
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    except KeyboardInterrupt as error:
        if os.environ["ENDS"] == "fails":
            raise ImportError("initialization failed") from error
    return [{"x": np.ones((1, 5), "f4")}] * 4
"""


@pytest.mark.parametrize("ends", ["fails", "goes on"])
def test_a_command_whose_stop_a_library_lost_was_stopped(tmp_path, ends):
    """It is not an internal error, not a missing framework, and nothing is delivered behind it."""
    model = onnx_models.write(tmp_path, onnx_models.mlp(), "mlp.onnx")
    (tmp_path / "lost.py").write_text(FEEDS)
    (tmp_path / "place").mkdir()
    done = subprocess.run(
        command("export", model, "--int8", "--calib", "lost:feeds", "-o", tmp_path / "place" / "out"),
        env={**os.environ, "PYTHONPATH": str(tmp_path), "ENDS": ends},
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (done.returncode, done.stderr.splitlines()[-1]) == (143, "stopped; nothing was written")
    assert not everything_below(tmp_path / "place")
