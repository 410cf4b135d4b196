"""What the command line tells on stderr while it happens.

rich takes a twentieth of a second to import: off a terminal, where it would add nothing, that is left out.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from convertkit.records import StepRecord

T = TypeVar("T")


class ConsoleProgress:
    """Progress on stderr: bars on a terminal, one plain line per finished step everywhere."""

    def __init__(self, *, verbose: bool = False, quiet: bool = False) -> None:
        self._verbose = verbose
        self._quiet = quiet
        self._live = sys.stderr.isatty() and not os.environ.get("CI") and not quiet

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
            console=Console(stderr=True, highlight=False, soft_wrap=True),
            transient=True,
            disable=not self._live,
        )

    @cached_property
    def _current(self) -> TaskID:
        return self._bars.add_task("opening", total=None, count="")

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
        if self._live:
            self._bars.update(self._current, description=title)

    def warn(self, warning: str) -> None:
        self._print(f"warning: {warning}", "yellow")

    def track(self, items: Iterable[T], total: int | None, title: str) -> Iterator[T]:
        if not self._live:
            yield from items
            return
        whole = "" if total is None else f"/{total}"
        task = self._bars.add_task(title, total=total, count=f"0{whole}")
        try:
            for done, item in enumerate(items, 1):
                yield item
                self._bars.update(task, completed=done, count=f"{done}{whole}")
        finally:
            self._bars.remove_task(task)

    def step(self, target: str, step: StepRecord) -> None:
        """One line per finished step: name, time, size, parity."""
        from convertkit.formatting import diff_text, parity_text, size_text

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

    def say(self, line: str, *, failed: bool = False) -> None:
        """One line, of something that is done or has failed."""
        self._print(line, "bold red" if failed else "")

    def _print(self, line: str, style: str) -> None:
        if self._quiet:
            return
        if not sys.stderr.isatty():
            print(line, file=sys.stderr)
            return
        from rich.text import Text

        self._bars.console.print(Text(line, style=style))


def _time(step: StepRecord) -> str:
    return "cached" if step.cached else f"{step.seconds:.2f} s"
