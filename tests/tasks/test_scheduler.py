"""What a scheduler promises about order, sharing, failures, memory and what it lets go."""

import threading
import time
from collections import deque
from concurrent.futures import CancelledError, Future

import pytest

from convertkit.errors import Unsupported
from convertkit.tasks.local import Local
from convertkit.tasks.scheduler import _Run
from convertkit.tasks.store import Store
from tests.tasks.small_tasks import Say


def wait_for(condition):
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.002)


def test_one_job_runs_in_the_order_of_the_code(scheduler, ran):
    a, b = Say("a"), Say("b")
    left, right = Say("left", (a,)), Say("right", (b, a))
    one = scheduler()
    gate = threading.Event()
    one.submit(Say("first", gate=gate))  # all is submitted before anything else starts
    one.submit(Say("top", (left, right)))
    one.submit(Say("later"))
    gate.set()
    assert one.result(Say("top", (left, right))).text == "top(left(a()),right(b(),a()))"
    one.result(Say("later"))
    assert ran == ["first", "a", "left", "b", "right", "top", "later"]


def test_equal_keys_are_one_task(scheduler, ran):
    one = scheduler(jobs=2)
    results = {one.result(Say("top", (Say("a"), Say("a")))).text, one.result(Say("top", (Say("a"), Say("a")))).text}
    assert results == {"top(a(),a())"}
    assert sorted(ran) == ["a", "top"]


def test_tasks_without_a_key_are_themselves_alone(scheduler, ran):
    same = Say("a", is_keyed=False)
    one = scheduler()
    assert one.result(Say("top", (same, same, Say("a", is_keyed=False)))).text == "top(a(),a(),a())"
    assert ran == ["a", "a", "top"]


def test_a_failure_is_told_by_all_that_need_it_and_by_no_other(scheduler, ran):
    bad = Say("bad", fails=Unsupported("no such operator"))
    one = scheduler(jobs=2)
    good = Say("good")
    for each in (Say("top", (Say("mid", (bad,)), good)), good):
        one.submit(each)
    with pytest.raises(Unsupported, match="no such operator") as raised:
        one.result(Say("top", (Say("mid", (bad,)), good)))
    assert raised.value is bad.fails
    assert one.result(good).text == "good()"
    assert "mid" not in ran
    with pytest.raises(Unsupported):
        one.result(Say("another", (bad,)))


def test_what_only_a_failed_task_needs_is_not_started(scheduler, ran):
    gate = threading.Event()
    bad = Say("bad", fails=Unsupported("no"), gate=gate)
    one = scheduler()
    one.submit(top := Say("top", (bad, Say("in vain"))))
    gate.set()
    with pytest.raises(Unsupported):
        one.result(top)
    one.result(Say("next"))
    assert ran == ["bad", "next"]


def test_cancelled_tasks_are_not_started_where_nobody_else_needs_them(scheduler, ran):
    gate = threading.Event()
    shared, one = Say("shared"), scheduler()
    one.submit(first := Say("first", gate=gate))
    one.submit(kept := Say("kept", (shared,)))
    one.submit(dropped := Say("dropped", (shared, Say("only here"))))
    one.cancel(dropped)
    gate.set()
    assert one.result(kept).text == "kept(shared())"
    one.result(first)
    assert ran == ["first", "shared", "kept"]
    assert one.result(dropped).text == "dropped(shared(),only here())", "it can be asked for again"


def test_cancel_waits_for_what_runs(scheduler, ran):
    one = scheduler()
    gate = threading.Event()
    one.submit(slow := Say("slow", gate=gate))
    one.submit(after := Say("after", (slow,)))
    wait_for(lambda: ran)
    ends = threading.Timer(0.2, gate.set)
    ends.start()
    one.cancel(after, slow)
    assert gate.is_set()
    assert ran == ["slow"]
    ends.join()


def test_who_waits_for_a_cancelled_task_is_told(scheduler):
    gate = threading.Event()
    one = scheduler()
    one.submit(first := Say("first", gate=gate))
    second, told = Say("second"), []

    def wait():
        with pytest.raises(CancelledError):
            one.result(second)
        told.append(True)

    thread = threading.Thread(target=wait)
    one.submit(second)
    thread.start()
    wait_for(lambda: one._graph.node(second).holds)
    one.cancel(second)
    thread.join(20)
    assert told
    gate.set()
    one.result(first)


class Watched:
    """Executor that notes what runs at the same time."""

    def __init__(self, inner):
        self.inner, self.now, self.seen, self.guard = inner, set(), [], threading.Lock()

    def start(self, resources, progress, inner):
        self.inner.start(resources, progress, inner)

    def submit(self, name, task, given, folder):
        with self.guard:
            self.now.add(task.name)
            self.seen.append(frozenset(self.now))
        future = self.inner.submit(name, task, given, folder)
        future.add_done_callback(lambda done: self.gone(task.name))
        return future

    def gone(self, name):
        with self.guard:
            self.now.discard(name)

    def close(self):
        self.inner.close()


@pytest.fixture
def watched():
    return lambda jobs: Watched(Local(jobs))


def test_jobs_bound_what_runs_at_once(scheduler, watched):
    executor = watched(2)
    one = scheduler(jobs=2, executor=executor)
    one.result(Say("top", tuple(Say(f"{number}", seconds=0.01) for number in range(8))))
    assert max(map(len, executor.seen)) == 2


def test_memory_bounds_what_runs_at_once(scheduler, watched):
    executor = watched(4)
    one = scheduler(jobs=4, memory_bytes=100, executor=executor)
    sizes = {"60": 60, "50": 50, "40": 40, "300": 300, "0": 0, "none": 0}
    tasks = tuple(Say(name, bytes_held=size, seconds=0.03) for name, size in sizes.items())
    one.result(Say("top", tasks))
    for together in executor.seen:
        held = [sizes[name] for name in together if sizes.get(name)]
        assert sum(held) <= 100 or len(held) == 1, together
    assert any(len(together) > 2 for together in executor.seen), "those that hold nothing run beside the others"


def test_a_time_is_taken_while_nothing_else_runs(scheduler, watched):
    executor = watched(4)
    one = scheduler(jobs=4, executor=executor)
    tasks = [Say(f"{number}", seconds=0.02) for number in range(6)]
    tasks.insert(0, Say("first timed", alone=True, seconds=0.02))
    tasks.insert(3, Say("timed", alone=True, seconds=0.02))
    one.result(Say("top", tuple(tasks)))
    assert [together for together in executor.seen if together & {"first timed", "timed"}] == [
        {"first timed"},
        {"timed"},
    ]


def test_results_and_folders_are_let_go_when_nothing_needs_them(scheduler, tmp_path):
    a, held = Say("a"), Say("held")
    b = Say("b", (a, held))
    one = scheduler()
    one.hold(held)
    result = one.result(Say("top", (b,)))
    assert result.file.read_text() == "top(b(a(),held()))"
    kept = sorted(file.read_text() for file in (tmp_path / "work").rglob("said.txt"))
    assert kept == ["held()", "top(b(a(),held()))"]
    assert one.result(held).text == "held()"
    with pytest.raises(LookupError, match="say a was let go"):
        one.result(a)
    one.release(held)
    with pytest.raises(LookupError):
        one.result(held)


def test_what_was_let_go_is_made_again_for_another(scheduler, ran):
    a, one = Say("a"), scheduler()
    one.result(Say("first", (a,)))
    assert one.result(Say("second", (a,))).text == "second(a())"
    assert ran == ["a", "first", "a", "second"]


class Choose(Say):
    """Returns one of the results that it is given, as it is."""

    __slots__ = ()

    def run(self, given, context):
        return given[0]


def test_a_folder_stays_as_long_as_any_result_refers_to_it(scheduler, tmp_path):
    one = scheduler()
    chosen = Choose("chosen", (Say("a"), Say("b")))
    assert one.result(chosen).file.read_text() == "a()"
    one.result(top := Say("top", (chosen,)))
    assert [file.read_text() for file in (tmp_path / "work").rglob("said.txt")] == ["top(a())"]
    assert one.result(top).text == "top(a())"


def test_what_was_submitted_stays_until_it_is_fetched(scheduler):
    one, asked = scheduler(), Say("asked")
    one.submit(asked)
    one.result(Say("first", (asked,)))
    assert one.result(asked).text == "asked()", "though all that needs it is done"
    with pytest.raises(LookupError):
        one.result(asked)


def test_the_folder_of_a_failed_task_goes(scheduler, tmp_path):
    class Leaving(Say):
        __slots__ = ()

        def run(self, given, context):
            (context.folder / "half").touch()
            raise Unsupported("no")

    with pytest.raises(Unsupported):
        scheduler().result(Leaving("a"))
    assert not list((tmp_path / "work").rglob("*"))


class Repeating(Future):
    """Tells of its end twice, as two threads that watch a run at the same moment have it."""

    def add_done_callback(self, fn):
        super().add_done_callback(fn)
        super().add_done_callback(fn)


def test_the_end_of_a_run_is_seen_to_once(scheduler, tmp_path):
    class Told(Local):
        def submit(self, name, task, given, folder):
            ours = Repeating()
            super().submit(name, task, given, folder).add_done_callback(lambda done: ours.set_result(done.result()))
            return ours

    done = []
    with Store.at(tmp_path / "cache", 10**9, warn=pytest.fail) as store:
        one = scheduler(store=store, executor=Told(1), on_done=lambda task, cached, seconds: done.append(task.name))
        assert one.result(Say("top", (Say("a"),))).file.exists()
        one.close()
    assert done == ["a", "top"]


def test_done_tasks_are_told(scheduler):
    told = []
    one = scheduler(on_done=lambda task, cached, seconds: told.append((task.name, cached, seconds > 0)))
    one.result(top := Say("top", (Say("a", seconds=0.01),)))
    assert told == [("a", False, True), ("top", False, True)]
    assert one.seconds(Say("a")) >= 0.01
    assert not one.was_cached(top)


def test_many_quick_tasks_of_many_threads_end_once_each(scheduler, ran):
    told = []
    one = scheduler(jobs=4, on_done=lambda task, cached, seconds: told.append(task.name))
    threads = [
        threading.Thread(target=lambda at=at: [one.result(Say(f"{at}-{number}")) for number in range(100)])
        for at in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(told) == sorted(ran)
    assert len(set(told)) == len(told) == 400


def test_after_an_interrupt_nothing_new_starts_and_what_runs_is_waited_for(scheduler, ran):
    one = scheduler()
    one.submit(slow := Say("slow", seconds=0.2))
    one.submit(after := Say("after", (slow,)))
    wait_for(lambda: ran)

    class Interrupting(type(one._changed)):
        def wait(self, timeout=None):
            if not one._stopping:
                raise KeyboardInterrupt
            return super().wait(timeout)

    one._changed.__class__ = Interrupting
    with pytest.raises(KeyboardInterrupt):
        one.result(after)
    assert not one._running
    assert ran == ["slow"]
    with pytest.raises(RuntimeError, match="closed"):
        one.result(after)


class TestCache:
    def run(self, scheduler, place, *tasks, **more):
        with Store.at(place, 10**9) as store:
            one = scheduler(store=store, **more)
            results = [one.result(task) for task in tasks]
            read = [(each.text, each.file.read_text(), each.array.tolist()) for each in results]
            cached = [one.was_cached(task) for task in tasks]
            one.close()
        return read, cached

    def test_a_second_run_runs_nothing(self, scheduler, tmp_path, ran):
        def top():
            return Say("top", (Say("a"), Say("b")))

        first, cached = self.run(scheduler, tmp_path / "cache", top())
        assert cached == [False]
        assert self.run(scheduler, tmp_path / "cache", top()) == (first, [True])
        assert sorted(ran) == ["a", "b", "top"]

    def test_a_changed_option_runs_what_depends_on_it(self, scheduler, tmp_path, ran):
        def top(option):
            return Say("top", (Say("left", (Say("a"),), option), Say("right", (Say("a"),))))

        self.run(scheduler, tmp_path / "cache", top(""))
        ran.clear()
        (((text, *_),), _) = self.run(scheduler, tmp_path / "cache", top("!"))
        assert text == "top(left!(a()),right(a()))"
        assert ran == ["left", "top"]

    def test_what_has_no_key_runs_each_time_and_all_that_needs_it(self, scheduler, tmp_path, ran):
        for _ in range(2):
            self.run(scheduler, tmp_path / "cache", Say("top", (Say("mine", is_keyed=False), Say("a"))))
        assert ran == ["mine", "a", "top", "mine", "top"]

    def test_what_is_kept_in_memory_alone_runs_for_those_that_run(self, scheduler, tmp_path, ran):
        def live():
            return Say("live", keeps=None)

        self.run(scheduler, tmp_path / "cache", Say("top", (live(),)))
        self.run(scheduler, tmp_path / "cache", Say("top", (live(),)), Say("new", (live(),)))
        assert ran == ["live", "top", "live", "new"]

    def test_a_result_that_vanishes_during_the_run_is_made_again(self, scheduler, tmp_path, ran):
        a = Say("a")
        self.run(scheduler, tmp_path / "cache", a)
        with Store.at(tmp_path / "cache", 10**9) as store:
            one = scheduler(store=store)
            one.submit(again := Say("a"))
            for entry in store.entries():
                store.drop(tmp_path / "cache" / "results" / entry.key[:2] / entry.key)
            assert one.result(Say("top", (again,))).text == "top(a())"
            one.close()
        assert ran == ["a", "a", "top"]

    def test_needs_of_what_was_cached_count_as_cached(self, scheduler, tmp_path):
        a = Say("a")
        self.run(scheduler, tmp_path / "cache", Say("top", (a,)))
        with Store.at(tmp_path / "cache", 10**9) as store:
            one = scheduler(store=store)
            one.result(Say("top", (again := Say("a"),)))
            assert one.was_cached(again)
            assert one.result(again).text == "a()"
            one.close()


def test_a_run_is_never_spelled_out(tmp_path):
    """A deque that does not find it puts its text into the error, and that of a graph took minutes."""

    class Node:
        def __repr__(self):
            raise AssertionError("the whole graph")

    with pytest.raises(ValueError, match="not in deque"):
        deque().remove(_Run(Node(), 0, tmp_path, Future()))
