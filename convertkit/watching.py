"""How an export that was started from Python tells of its progress: a logger, and a bar or a function."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any, TypeVar

from convertkit.progress import Progress, Silent

if TYPE_CHECKING:
    from convertkit.records import StepRecord

T = TypeVar("T")
Told = Callable[[str, int, int | None], object]
"""Called with what is being done, how much of it is done, and of how much; None where that is not known."""
OnStep = Callable[[str, "StepRecord"], None]
LOGGER = logging.getLogger("convertkit")


class Calls:
    """Progress as calls of a function."""

    def __init__(self, told: Told) -> None:
        self._told = told

    def track(self, items: Iterable[T], total: int | None, title: str) -> Iterator[T]:
        """Tell after each item."""
        done = 0
        self._told(title, done, total)
        for item in items:
            yield item
            done += 1
            self._told(title, done, total)

    def status(self, title: str) -> None:
        self._told(title, 0, None)

    def overall(self, share: float, left_s: float | None) -> None:
        return  # the function is told of each part

    def warn(self, warning: str) -> None:
        return  # the logger has it


class Logged:
    """Passes progress on, and tells the logger ``convertkit``: warnings as such, the rest at level DEBUG."""

    def __init__(self, shown: Progress) -> None:
        self._shown = shown

    def track(self, items: Iterable[T], total: int | None, title: str) -> Iterator[T]:
        LOGGER.debug("%s", title)
        return self._shown.track(items, total, title)

    def status(self, title: str) -> None:
        LOGGER.debug("%s", title)
        self._shown.status(title)

    def overall(self, share: float, left_s: float | None) -> None:
        self._shown.overall(share, left_s)

    def warn(self, warning: str) -> None:
        LOGGER.warning("%s", warning)
        self._shown.warn(warning)


class NotebookBar:
    """A bar in the cell of a notebook, drawn by IPython alone."""

    def __init__(self, display: Callable[..., Any]) -> None:
        self._handle = display({"text/plain": "opening", "text/html": "opening"}, raw=True, display_id=True)

    def __call__(self, title: str, done: int, total: int | None) -> None:
        value = "" if total is None else f' value="{done}" max="{total}"'
        count = "" if total is None else f" {done}/{total}"
        drawn = f"<progress{value}></progress> {escape(title)}{count}"
        self._handle.update({"text/plain": f"{title}{count}", "text/html": drawn}, raw=True)


@contextmanager
def watched(progress: bool | Told | None, *, verbose: bool) -> Iterator[tuple[Progress, OnStep]]:
    """Where an export tells of its progress and of each step: a function, a bar, or the logger alone.

    ``None`` shows a bar in a notebook and on a terminal.
    """
    display = _notebook()
    if callable(progress):
        yield Logged(Calls(progress)), _log_step
    elif progress is False or (progress is None and display is None and not _at_a_terminal()):
        yield Logged(Silent()), _log_step
    elif display is not None:
        bar = NotebookBar(display)
        yield Logged(Calls(bar)), _log_step
        bar("done", 1, 1)
    else:
        from convertkit.console import ConsoleProgress

        with ConsoleProgress(verbose=verbose) as console:
            yield Logged(console), _both(console.step)


def _both(shown: OnStep) -> OnStep:
    def on_step(target: str, step: StepRecord) -> None:
        _log_step(target, step)
        shown(target, step)

    return on_step


def _log_step(target: str, step: StepRecord) -> None:
    if not LOGGER.isEnabledFor(logging.INFO):
        return
    from convertkit.formatting import parity_text

    found = parity_text(step.versus_previous)
    LOGGER.info("%s: %s, %.2f s, %d bytes, %s", target, step.stage, step.seconds, step.size_bytes, found)


def _notebook() -> Callable[..., Any] | None:
    """What draws in a notebook's cell, None outside of one."""
    kernel, shown = sys.modules.get("ipykernel"), sys.modules.get("IPython.display")
    shell = sys.modules.get("IPython")
    if kernel is None or shown is None or shell is None or shell.get_ipython() is None:
        return None
    display: Callable[..., Any] = shown.display
    return display


def _at_a_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty() and not os.environ.get("CI")
