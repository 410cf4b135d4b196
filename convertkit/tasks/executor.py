"""Where tasks run: what a scheduler asks of that."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from convertkit.progress import Progress
from convertkit.tasks.inner import InnerTasks
from convertkit.tasks.resources import Resources
from convertkit.tasks.task import Task


@dataclass(frozen=True, slots=True)
class Ran:
    """A task's result, the folder that its files are in, and the seconds that the run took."""

    value: Any
    folder: Path
    seconds: float


class Executor(Protocol):
    """Runs tasks, as many at once as it is given.  :meth:`start` comes first and :meth:`close` last."""

    def start(self, resources: Resources, progress: Progress, inner: InnerTasks) -> None:
        """What tasks that run in this process work with; elsewhere they have others."""
        ...

    def submit(self, name: str, task: Task[Any], given: tuple[Any, ...], folder: Path) -> Future[Ran]:
        """Run the task in ``folder``, or in a new folder below it; ``name`` is unique to this task and attempt."""
        ...

    def halt(self) -> None:
        """End what runs as soon as that can be done; :meth:`close` does not wait for it any longer."""
        ...

    def close(self) -> None:
        """Wait for what runs, and end."""
        ...
