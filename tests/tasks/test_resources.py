"""Live things: opened once, one holder at a time, closed at the end in reverse order."""

import threading
from contextlib import contextmanager

import pytest

from convertkit.tasks.resources import Resources


class Log:
    def __init__(self):
        self.said = []

    def make(self, name, fails_at_end=False):
        @contextmanager
        def opened():
            self.said.append(f"open {name}")
            try:
                yield name
            finally:
                self.said.append(f"close {name}")
                if fails_at_end:
                    raise ValueError(f"{name} does not close")

        return opened


@pytest.fixture
def log():
    return Log()


def test_opened_when_asked_for_kept_and_closed_in_reverse_order(log):
    with Resources() as resources:
        for name in ("a", "b", "a"):
            with resources.held(name, log.make(name)) as value:
                assert value == name
        assert log.said == ["open a", "open b"]
    assert log.said == ["open a", "open b", "close b", "close a"]


def test_one_holder_at_a_time(log):
    inside, most = [], []

    def hold():
        for _ in range(20):
            with resources.held("a", log.make("a")):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    with Resources() as resources:
        threads = [threading.Thread(target=hold) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert set(most) == {1}
    assert log.said == ["open a", "close a"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_all_is_closed_after_errors(log, error):
    with pytest.raises(error), Resources() as resources:
        with resources.held("a", log.make("a")):
            pass
        with resources.held("b", log.make("b")):
            pass
        raise error
    assert log.said[-2:] == ["close b", "close a"]


def test_one_that_does_not_close_keeps_no_other_open(log):
    with pytest.raises(ValueError, match="b does not close"), Resources() as resources:
        with resources.held("a", log.make("a")):
            pass
        with resources.held("b", log.make("b", fails_at_end=True)):
            pass
    assert log.said[-1] == "close a"


@pytest.mark.parametrize("fails_at_end", [False, True])
def test_after_a_failure_the_next_holder_gets_a_new_one(log, fails_at_end):
    with Resources() as resources:
        with pytest.raises(KeyError, match="use"), resources.held("a", log.make("a", fails_at_end)):
            raise KeyError("use")
        with resources.held("a", log.make("a")):
            pass
        assert log.said == ["open a", "close a", "open a"]
    assert log.said == ["open a", "close a", "open a", "close a"]


def test_what_cannot_be_opened_is_tried_again(log):
    @contextmanager
    def broken():
        raise OSError("no")
        yield

    with Resources() as resources:
        with pytest.raises(OSError, match="no"), resources.held("a", broken):
            pass
        with resources.held("a", log.make("a")):
            pass
    assert log.said == ["open a", "close a"]


def test_a_thread_does_not_wait_for_itself(log):
    with Resources() as resources, resources.held("a", log.make("a")):
        with pytest.raises(RuntimeError, match="held by this thread"), resources.held("a", log.make("a")):
            pass
        with resources.held("b", log.make("b")) as other:
            assert other == "b"


def test_nothing_is_opened_after_the_end(log):
    with Resources() as resources:
        pass
    with pytest.raises(RuntimeError, match="after everything was closed"), resources.held("a", log.make("a")):
        pass
    assert not log.said


def test_what_is_forgotten_is_closed_and_opened_anew(log):
    with Resources() as resources:
        resources.forget("a")
        for _ in range(2):
            with resources.held("a", log.make("a")):
                pass
            resources.forget("a")
            resources.forget("a")
        assert log.said == ["open a", "close a", "open a", "close a"]
        with resources.held("b", log.make("b")):
            pass
        resources.forget("a")
        assert log.said[4:] == ["open b"], "others stay open"
    resources.close()
    assert log.said[4:] == ["open b", "close b"]


def test_the_end_waits_for_who_holds_something(log):
    resources, begun, go = Resources(), threading.Event(), threading.Event()

    def hold():
        with resources.held("a", log.make("a")):
            begun.set()
            go.wait(20)
            log.said.append("used")

    thread = threading.Thread(target=hold)
    thread.start()
    begun.wait(20)
    threading.Timer(0.05, go.set).start()
    resources.close()
    thread.join()
    assert log.said == ["open a", "used", "close a"]


def test_ctrl_c_leaves_a_thing_to_its_holder_who_closes_it(log):
    held, goes_on = threading.Event(), threading.Event()

    def hold():
        with resources.held("a", log.make("a")):
            held.set()
            goes_on.wait(20)

    with pytest.raises(KeyboardInterrupt), Resources() as resources:
        thread = threading.Thread(target=hold)
        thread.start()
        held.wait(20)
        with resources.held("b", log.make("b")):
            pass
        raise KeyboardInterrupt
    assert log.said == ["open a", "open b", "close b"]
    goes_on.set()
    thread.join(20)
    assert log.said == ["open a", "open b", "close b", "close a"]
