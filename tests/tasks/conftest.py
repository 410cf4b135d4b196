"""A scheduler of small tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from convertkit.progress import Silent
from convertkit.tasks.local import Local
from convertkit.tasks.resources import Resources
from convertkit.tasks.scheduler import Scheduler
from convertkit.tasks.store import Store
from tests.tasks.small_tasks import RUNS


@pytest.fixture
def ran() -> Iterator[list[str]]:
    """The names of the tasks that ran in this test."""
    RUNS.clear()
    yield RUNS
    RUNS.clear()


@pytest.fixture
def scheduler(tmp_path) -> Iterator[Callable[..., Scheduler]]:
    """Makes schedulers; each has a temporary store, unless it is given another."""
    with ExitStack() as stack:

        def make(jobs=1, memory_bytes=1000, store=None, executor=None, **more):
            resources = stack.enter_context(Resources())
            store = store or stack.enter_context(Store.temporary(tmp_path / "work"))
            made = Scheduler(executor or Local(jobs), store, resources, Silent(), jobs, memory_bytes, **more)
            return stack.enter_context(made)

        yield make
