"""Tasks in threads of this process; what needs a process of its own holds one as a resource."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from convertkit.progress import Progress
from convertkit.tasks.executor import Ran
from convertkit.tasks.halting import Halting
from convertkit.tasks.inner import InnerTasks
from convertkit.tasks.resources import Resources
from convertkit.tasks.task import Context, Task


class Local:
    """Runs up to ``jobs`` tasks at once."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._halting = Halting()
        self._is_halted = False
        self._started: tuple[ThreadPoolExecutor, Resources, Progress, InnerTasks] | None = None

    def start(self, resources: Resources, progress: Progress, inner: InnerTasks) -> None:
        """Let tasks use these."""
        self._started = (ThreadPoolExecutor(self._jobs, "task"), resources, progress, inner)

    def submit(self, name: str, task: Task[Any], given: tuple[Any, ...], folder: Path) -> Future[Ran]:
        """Run the task in the next free thread."""
        assert self._started is not None
        threads, resources, progress, inner = self._started
        return threads.submit(self._run, task, given, Context(folder, progress, resources, inner))

    def halt(self) -> None:
        """Raise ``Halted`` in the tasks that run, which ends them at their next step of Python."""
        self._is_halted = True
        self._halting.halt()

    def close(self) -> None:
        """Wait for what runs, unless it was halted."""
        if self._started is not None:
            self._started[0].shutdown(wait=not self._is_halted, cancel_futures=self._is_halted)

    def _run(self, task: Task[Any], given: tuple[Any, ...], context: Context) -> Ran:
        began = time.perf_counter()
        with self._halting.at_work():
            value = task.run(given, context)
        return Ran(value, context.folder, time.perf_counter() - began)
