"""What the command line tells on stderr while it happens.

rich takes a twentieth of a second to import: off a terminal, where it would add nothing, that is left out.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from convertkit.quiet import stderr_if_free

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from convertkit.records import StepRecord

T = TypeVar("T")


_EVERY_S = 20.0
"""Between two plain lines that say how far a long command is."""
_WORTH_SAYING_S = 3.0
"""What a stage has taken before the time that it still takes is told."""


class ConsoleProgress:
    """Progress on stderr: bars on a terminal, one plain line per finished step everywhere.

    Off a terminal a line now and then says what is being done, how much is done and how long the rest takes.
    """

    def __init__(
        self, *, verbose: bool = False, quiet: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._verbose = verbose
        self._quiet = quiet
        self._clock = clock
        self._live = sys.stderr.isatty() and not os.environ.get("CI") and not quiet
        self._whole = ""
        self._stage = ""
        self._last_line = clock()

    @cached_property
    def _bars(self) -> Progress:
        from rich import progress
        from rich.console import Console

        return progress.Progress(
            progress.SpinnerColumn(),
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.TextColumn("{task.fields[count]}"),
            progress.TimeElapsedColumn(),
            progress.TextColumn("{task.fields[left]}"),
            console=Console(stderr=True, highlight=False, soft_wrap=True),
            transient=True,
            disable=not self._live,
        )

    @cached_property
    def _current(self) -> TaskID:
        return self._bars.add_task("opening", total=None, count="", left="")

    def __enter__(self) -> Self:
        if self._live:
            self.status("opening")
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._bars.stop()

    def status(self, title: str) -> None:
        self._stage = title
        if self._live:
            self._bars.update(self._current, description=title)
        else:
            self._line_now_and_then(title)

    def overall(self, share: float, left_s: float | None) -> None:
        percent = f"{int(100 * share)} %"
        left = "" if left_s is None else f"about {duration(left_s)} left"
        self._whole = f"{percent}, {left}" if left else percent
        if self._live:
            self._bars.update(self._current, total=1.0, completed=share, count=percent, left=left)
        else:
            self._line_now_and_then(self._stage)

    def warn(self, warning: str) -> None:
        self._print(f"warning: {warning}", "yellow")

    def track(self, items: Iterable[T], total: int | None, title: str) -> Iterator[T]:
        whole = "" if total is None else f"/{total}"
        began = self._clock()
        task = self._bars.add_task(title, total=total, count=f"0{whole}", left="") if self._live else None
        try:
            for done, item in enumerate(items, 1):
                yield item
                left = _left(self._clock() - began, done, total)
                if task is None:
                    self._line_now_and_then(f"{title} {done}{whole}{f', {left}' if left else ''}")
                else:
                    self._bars.update(task, completed=done, count=f"{done}{whole}", left=left)
        finally:
            if task is not None:
                self._bars.remove_task(task)

    def _line_now_and_then(self, doing: str) -> None:
        """A line of its own where none was written for long; left out where native code is being kept silent."""
        if self._clock() - self._last_line < _EVERY_S:
            return
        with stderr_if_free() as free:
            if free:
                self._print(f"{self._whole}: {doing}" if self._whole else doing, "")

    def step(self, target: str, step: StepRecord) -> None:
        """One line per finished step: name, time, size, parity."""
        from convertkit.formatting import diff_text, parity_text
        from convertkit.text import size_text

        mark = "ok  " if step.passed else "FAIL"
        line = (
            f"{mark} {step.stage:<18} {_time(step):>8}  {size_text(step.size_bytes):>9}  "
            f"{parity_text(step.versus_previous)}"
        )
        self._print(line, "" if step.passed else "bold red")
        for warning in dict.fromkeys((*step.versus_previous.warnings, *step.versus_source.warnings)):
            self._print(f"     warning: {warning}", "yellow")
        if self._verbose:
            for diff in step.versus_previous.diffs:
                self._print(f"     {diff.name}: {diff_text(diff)}", "dim")

    def say(self, line: str, *, failed: bool = False, of: Mapping[str, object] | None = None) -> None:
        """One line, of something that is done or has failed; ``of``, the same as values, is for other listeners."""
        self._print(line, "bold red" if failed else "")

    def _print(self, line: str, style: str) -> None:
        self._last_line = self._clock()
        if self._quiet:
            return
        if not sys.stderr.isatty():
            print(line, file=sys.stderr)
            return
        from rich.text import Text

        self._bars.console.print(Text(line, style=style))


def duration(seconds: float) -> str:
    """Seconds as people say them: ``40 s``, ``3 min``, ``2 h 10 min``."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def _left(elapsed: float, done: int, total: int | None) -> str:
    """How long the other items of a stage take, where that is worth saying."""
    if total is None or not 0 < done < total or elapsed < _WORTH_SAYING_S:
        return ""
    return f"about {duration(elapsed * (total - done) / done)} left"


def _time(step: StepRecord) -> str:
    return "cached" if step.cached else f"{step.seconds:.2f} s"
