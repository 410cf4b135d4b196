"""What stops a command: Ctrl-C, SIGTERM and SIGHUP, each heard once, wherever the command is at that moment."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from functools import wraps
from types import FrameType
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

_CLOSED = getattr(signal, "SIGHUP", signal.SIGTERM)
"""The terminal was closed; Windows has no such signal."""
_AGAIN_S = 0.05
P = ParamSpec("P")
R = TypeVar("R")
_WHOLE = frozenset({
    (__name__, "to_its_end"),
    ("shutil", "rmtree"), ("tempfile", "mkdtemp"), ("tempfile", "__init__"), ("tempfile", "cleanup"),
})  # fmt: skip
"""Functions, by module and name, that come to their end before a signal stops the command: what they make or remove
would be left behind."""


def nothing_begun() -> None:
    """Let Ctrl-C end a process that has nothing to clear up as SIGTERM does, without a traceback."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def whole(call: Callable[P, R]) -> Callable[P, R]:
    """A function that is quick, and that a signal which stops the command does not cut off."""

    @wraps(call)
    def to_its_end(*given: P.args, **named: P.kwargs) -> R:
        return call(*given, **named)

    return to_its_end


class Stopping:
    """Whether a signal has told this command to stop: it raises ``KeyboardInterrupt`` in the main thread.

    A library may lose that: Python drops what is raised while it finalizes an object, and ``except ImportError`` takes
    what a signal made of an import.  So it is raised again as long as nobody handles it.
    """

    __slots__ = ("_stop", "_taken", "number")

    def __init__(self) -> None:
        self.number: int | None = None
        """The signal, where one came."""
        self._stop: KeyboardInterrupt | None = None
        self._taken: list[int] = []

    def listen(self) -> None:
        """Let SIGTERM, and SIGHUP where it would end the process, stop the command as Ctrl-C does.

        A shell's background does not hear Ctrl-C, nor ``nohup`` a closed terminal, and we neither.
        """
        if hasattr(signal, "setitimer"):  # not on Windows
            signal.signal(signal.SIGALRM, self._again)
            sys.unraisablehook = _all_but_stops(sys.unraisablehook)
        for each in dict.fromkeys((signal.SIGINT, signal.SIGTERM, _CLOSED)):
            if signal.getsignal(each) in (signal.SIG_DFL, signal.default_int_handler):
                self._taken.append(each)
        for each in self._taken:
            signal.signal(each, self._heard)

    def over(self) -> None:
        """The command has ended and cleared up: nothing is raised any more.

        A signal that comes now ends the process; one behind the first disturbs nobody still.
        """
        if self.number is None:
            for each in self._taken:
                signal.signal(each, signal.SIG_DFL)
        elif hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        """End the run; a second signal does not disturb what clears up behind the first."""
        for each in self._taken:
            signal.signal(each, signal.SIG_IGN)
        self.number, self._stop = number, KeyboardInterrupt()
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_S, _AGAIN_S)
            self._again(number, frame)
        else:
            raise self._stop

    def _again(self, number: int, frame: FrameType | None) -> None:
        """Raise what was not raised yet or was lost, and leave alone who clears up behind it."""
        if self._stop is not None and not _is_whole(frame) and not _is_handled(self._stop):
            raise self._stop


def _is_whole(frame: FrameType | None) -> bool:
    """Whether a function runs that is to come to its end."""
    while frame is not None:
        if (frame.f_globals.get("__name__"), frame.f_code.co_name) in _WHOLE:
            return True
        frame = frame.f_back
    return False


def _is_handled(stop: BaseException) -> bool:
    """Whether an ``except``, a ``finally`` or the end of a ``with`` runs because of this exception."""
    waiting, seen = [sys.exc_info()[1]], set[int]()
    while waiting:
        error = waiting.pop()
        if error is stop:
            return True
        if error is not None and id(error) not in seen:
            seen.add(id(error))
            waiting += [error.__cause__, error.__context__]
    return False


def _all_but_stops(told: Callable[[UnraisableHookArgs], object]) -> Callable[[UnraisableHookArgs], object]:
    """A hook for errors that nobody can catch: one that stops the command is raised again, ``told`` has all others."""

    def hook(unraisable: UnraisableHookArgs) -> None:
        if not isinstance(unraisable.exc_value, KeyboardInterrupt):
            told(unraisable)

    return hook
