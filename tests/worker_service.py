"""A service for the worker's tests: it misbehaves on request."""

import gc
import os
import signal
import threading
import time

import numpy as np

from convertkit.errors import Unsupported, Untrusted
from convertkit.workers.held import HeldCalls
from convertkit.workers.process import Reply


class Returned(HeldCalls):
    """Gives its inputs back."""

    def _outputs(self):
        return self._given


class Service:
    def __init__(self):
        self.calls = 0

    def echo(self, params, arrays):
        self.calls += 1
        print("chatter that must not reach the protocol")
        return Reply({**params, "calls": self.calls}, {name: value * 2 for name, value in arrays.items()})

    def order(self, params, arrays):
        return Reply(list({f"name-{number}" for number in range(50)}))

    def run(self, params, arrays):
        return Reply(None, {"y": arrays["x"] + 1, "shape": np.array(arrays["x"].shape)})

    def crash(self, params, arrays):
        os.kill(os.getpid(), signal.SIGSEGV)

    def out_of_memory(self, params, arrays):
        os.kill(os.getpid(), signal.SIGKILL)

    def leave(self, params, arrays):
        os._exit(7)

    def leave_later(self, params, arrays):
        threading.Timer(0.1, os._exit, (7,)).start()
        return Reply()

    def hang(self, params, arrays):
        time.sleep(600)

    def collector(self, params, arrays):
        return Reply([gc.isenabled(), gc.get_freeze_count() > 0, gc.get_threshold()[0] >= 20_000])

    def wait(self, params, arrays):
        time.sleep(params["seconds"])
        return Reply()

    def refuse(self, params, arrays):
        raise Unsupported("no such kernel", subject="up2 (Resize-18)", location="model.py:41", ways_out=("--a", "--b"))

    def distrust(self, params, arrays):
        raise Untrusted("it holds code")

    def fail(self, params, arrays):
        raise ZeroDivisionError("division by zero")

    def too_much(self, params, arrays):
        raise MemoryError

    def pid(self, params, arrays):
        return Reply(os.getpid(), {"big": np.zeros((300, 1000))})
