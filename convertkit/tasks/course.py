"""How far a graph of tasks is: the share that is done and the time that is left, by what its tasks took so far."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from itertools import chain
from statistics import fmean, median

from convertkit.progress import Progress

_FIRST_TOLD_S = 2.0
"""Before that, there is too little to tell by."""
_FIRST_TOLD_TASKS = 4
_LEAST_LEFT = 0.1
"""Of its mean time, what a task that runs for longer is taken to need."""


class Course:
    """Tells ``progress`` of the whole after each task that begins or ends; any thread may call it.

    A task is expected to take as long as those of the same title did on average; the first of a title, as one in
    the middle of all.  A command has parts (targets, cells); those that have not begun are expected to take as long as
    those that have.  The share never falls.
    """

    def __init__(self, progress: Progress, clock: Callable[[], float] = time.monotonic) -> None:
        self._progress = progress
        self._clock = clock
        self._guard = threading.Lock()
        self._began = clock()
        self._took: dict[str, list[float]] = {}
        self._running: dict[Hashable, tuple[str, float]] = {}
        self._waiting = dict[Hashable, str]()
        self._parts = set[Hashable]()
        self._parts_begun = 0
        self._share = 0.0

    def expect_parts(self, parts: Iterable[Hashable]) -> None:
        """These parts are to come."""
        with self._guard:
            self._parts |= set(parts)

    def part_begun(self, part: Hashable, *, has_tasks: bool = True) -> None:
        """The tasks of a part are known; one that is cached has none.  Once is enough."""
        with self._guard:
            self._parts_begun += has_tasks and part in self._parts
            self._parts.discard(part)

    def waiting(self, titles: Mapping[Hashable, str]) -> None:
        """These tasks, and no others, are to run."""
        with self._guard:
            self._waiting = dict(titles)

    def starts(self, task: Hashable, title: str) -> None:
        """The task runs."""
        with self._guard:
            self._waiting.pop(task, None)
            self._running[task] = (title, self._clock())
        self._tell()

    def ends(self, task: Hashable) -> None:
        """The task has a result, or has failed."""
        with self._guard:
            title, began = self._running.pop(task)
            self._took.setdefault(title, []).append(self._clock() - began)
        self._tell()

    def _tell(self) -> None:
        with self._guard:
            elapsed = self._clock() - self._began
            if elapsed < _FIRST_TOLD_S or sum(map(len, self._took.values())) < _FIRST_TOLD_TASKS:
                return
            done = sum(map(sum, self._took.values()))
            begun = sum(self._clock() - each for _, each in self._running.values())
            left = self._left()
            left += len(self._parts) * (done + begun + left) / max(1, self._parts_begun)
            whole = done + begun + left
            self._share = max(self._share, (done + begun) / whole) if whole else self._share
            seconds = elapsed * left / (done + begun) if done + begun else None
        self._progress.overall(self._share, seconds)

    def _left(self) -> float:
        """Seconds of tasks that are known and have not ended."""
        means = {title: fmean(times) for title, times in self._took.items()}
        usual = median(chain.from_iterable(self._took.values()))
        running = (
            max(means.get(title, usual) - (self._clock() - began), _LEAST_LEFT * usual)
            for title, began in self._running.values()
        )
        return sum(running) + sum(means.get(title, usual) for title in self._waiting.values())
