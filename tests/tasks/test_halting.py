"""Work that is ended from another thread, and what a scheduler does with it behind Ctrl-C."""

import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest

from convertkit.tasks import scheduler as scheduling
from convertkit.tasks.halting import Halted, Halting
from convertkit.tasks.local import Local
from convertkit.workers.process import Worker
from convertkit.workers.programs import run_to_end
from tests.tasks.small_tasks import Say

ENDLESS = "import time; time.sleep(10**6)"


def halted(work):
    """What ``work`` ends with that a thread does when it is halted once it has called what it is given."""
    halting, begun = Halting(), threading.Event()

    def run():
        with halting.at_work():
            work(begun.set)

    with ThreadPoolExecutor(1) as threads:
        future = threads.submit(run)
        assert begun.wait(60)
        halting.halt()
        error = future.exception(60)
        after = threads.submit(lambda: sum(range(1000)))
        assert after.result(60) == 499500, "a thread at other work hears nothing"
    return error


def loop(begun):
    begun()
    while True:
        time.sleep(0.001)


def program(begun):
    """It tells itself that it runs: one that is only being started might be left behind."""
    with tempfile.TemporaryDirectory() as folder:
        sign = Path(folder) / "runs"

        def tell():
            while not sign.exists():
                time.sleep(0.005)
            begun()

        threading.Thread(target=tell, daemon=True).start()
        run_to_end([sys.executable, "-c", f"open({str(sign)!r}, 'w').close(); {ENDLESS}"])


def worker(begun):
    with Worker("tests.worker_service:Service") as one:
        one.call("order")
        begun()
        one.call("wait", {"seconds": 10**6})


@pytest.mark.parametrize("work", [loop, program, worker])
def test_work_is_halted(work):
    assert isinstance(halted(work), Halted)


def test_who_is_not_at_work_is_not_halted():
    halting = Halting()
    with halting.at_work():
        pass
    halting.halt()
    assert sum(range(1000)) == 499500


@pytest.mark.parametrize("takes_back", [False, True])
@pytest.mark.parametrize("deaf", [False, True])
def test_ctrl_c_ends_what_would_run_for_ever(scheduler, ran, monkeypatch, deaf, takes_back):
    """A task in Python is halted; one in a call that takes long is left to itself, and its end is nobody's."""
    monkeypatch.setattr(scheduling, "_PATIENCE_S", 0.3)
    begun, goes_on, ends = threading.Event(), threading.Event(), []

    class Endless(Say):
        def run(self, given, context):
            begun.set()
            try:
                goes_on.wait() if deaf else loop(begun.set)
            finally:
                ends.append(self.name)

    one = scheduler()
    endless = Endless("endless")
    with pytest.raises(KeyboardInterrupt), one, one.taken_back(endless) if takes_back else nullcontext():
        one.submit(endless)
        one.submit(Say("after", (endless,)))
        assert begun.wait(60)
        raise KeyboardInterrupt
    assert len(ends) == (0 if deaf else 1)
    goes_on.set()
    until = time.monotonic() + 60
    while not ends and time.monotonic() < until:
        time.sleep(0.002)
    assert len(ends) == 1
    assert ran == []
    assert one.is_stopping


def test_ctrl_c_while_a_task_begins(scheduler, monkeypatch):
    """The thread of the task runs already, and whoever started it has not heard of that."""
    monkeypatch.setattr(scheduling, "_PATIENCE_S", 0.3)
    begun, ended = threading.Event(), threading.Event()

    class Endless(Say):
        def run(self, given, context):
            try:
                loop(begun.set)
            finally:
                ended.set()

    class Interrupted(Local):
        def submit(self, *given):
            super().submit(*given)
            assert begun.wait(60)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), scheduler(executor=Interrupted(1)) as one:
        one.submit(Endless("endless"))
    assert ended.wait(60)
