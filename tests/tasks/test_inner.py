"""Tasks that running tasks ask for: equal ones are made once, and kept like others."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from convertkit.progress import Silent
from convertkit.tasks.inner import InnerTasks
from convertkit.tasks.resources import Resources
from convertkit.tasks.store import Store
from convertkit.tasks.task import Context, Task


@dataclass(frozen=True, slots=True)
class Number:
    value: int


@dataclass(frozen=True, slots=True, eq=False)
class Count(Task[Number]):
    """Notes each run; ``gate`` holds it up."""

    value: int
    runs: list[int]
    gate: threading.Event = field(default_factory=threading.Event)
    keyed: bool = True
    keeps = Number
    title = "count"
    needs = ()

    def decides(self):
        return {"value": self.value} if self.keyed else None

    def run(self, given, context):
        self.gate.wait(5)
        self.runs.append(self.value)
        if self.value < 0:
            raise ArithmeticError("less than nothing")
        return Number(self.value)


@pytest.fixture
def context(tmp_path):
    with Resources(tmp_path / "live") as resources:
        yield Context(tmp_path, Silent(), resources, InnerTasks(Store.temporary(tmp_path / "tasks")))


def opened(value, runs, **how):
    task = Count(value, runs, **how)
    task.gate.set()
    return task


def test_who_asks_for_the_same_waits_and_gets_it(context):
    runs = []
    tasks = [Count(7, runs) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        waiting = [threads.submit(context.once, task) for task in tasks]
        for task in tasks:
            task.gate.set()
        found = [each.result() for each in waiting]
    assert runs == [7]
    assert all(each is found[0] for each in found)
    assert context.once(opened(8, runs)) == Number(8)
    assert runs == [7, 8]


def test_without_a_key_each_has_its_own(context):
    runs = []
    for _ in range(2):
        context.once(opened(7, runs, keyed=False))
    assert runs == [7, 7]


def test_a_failure_is_the_asker_s_own(context):
    runs = []
    for _ in range(2):
        with pytest.raises(ArithmeticError):
            context.once(opened(-1, runs))
    assert runs == [-1, -1]


def test_a_cache_keeps_it_for_another_run(tmp_path):
    runs = []
    for _ in range(2):
        with Resources(tmp_path / "live") as resources, Store.at(tmp_path / "cache", 10**9) as store:
            assert Context(tmp_path, Silent(), resources, InnerTasks(store)).once(opened(7, runs)) == Number(7)
    assert runs == [7]
