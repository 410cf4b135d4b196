"""A signal that stops the command is heard wherever the command is."""

import signal
import subprocess
import sys

import pytest

FINALIZED = """
import os, signal, sys, time
from convertkit.stopping import listen

number = int(sys.argv[1])
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # `nohup` ignores it
listen()

class Finalized:
    def __init__(self, rest):
        self.rest = rest

    def __del__(self):
        if self.rest == "fails":
            raise ValueError("not a stop")
        os.kill(os.getpid(), number)
        time.sleep(60)

try:
    Finalized("fails")
    Finalized("stops")
    time.sleep(60)
except KeyboardInterrupt as stop:
    print(type(stop).__name__, getattr(stop, "number", ""))
"""


@pytest.mark.parametrize(
    ("number", "told"),
    [(signal.SIGINT, "KeyboardInterrupt "), (signal.SIGTERM, "Terminated 15"), (signal.SIGHUP, "Terminated 1")],
)
def test_a_signal_while_python_finalizes_an_object(number, told):
    """Python tells of an error there and goes on: the command would never end."""
    done = subprocess.run(
        [sys.executable, "-c", FINALIZED, str(int(number))], check=False, capture_output=True, text=True, timeout=50
    )
    assert done.stdout == f"{told}\n"
    assert "not a stop" in done.stderr
    assert told.split()[0] not in done.stderr
