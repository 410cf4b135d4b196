"""What stops a command: Ctrl-C, SIGTERM and SIGHUP, each heard once, wherever the command is at that moment."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

_CLOSED = getattr(signal, "SIGHUP", signal.SIGTERM)
"""The terminal was closed; Windows has no such signal."""
_AGAIN_S = 0.02


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP: ends a run as Ctrl-C does, which clears what lies beside the output folder."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def listen() -> None:
    """Let SIGTERM, and SIGHUP where it would end the process, stop the command as Ctrl-C does.

    A shell's background does not hear Ctrl-C, nor ``nohup`` a closed terminal, and we neither.
    """
    signal.signal(signal.SIGTERM, _stop)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _stop)
    if signal.getsignal(_CLOSED) is signal.SIG_DFL:
        signal.signal(_CLOSED, _stop)
    if hasattr(signal, "setitimer"):  # not on Windows
        sys.unraisablehook = _raised_again(sys.unraisablehook)


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    """End the run; a second signal does not disturb what clears up behind the first."""
    for each in (signal.SIGINT, signal.SIGTERM, _CLOSED):
        signal.signal(each, signal.SIG_IGN)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise Terminated(number)


def _raised_again(told: Callable[[UnraisableHookArgs], object]) -> Callable[[UnraisableHookArgs], object]:
    """A hook for errors that nobody can catch: one that stops the command is raised again a moment later.

    A signal may arrive while Python finalizes an object, a lock of an import for example, where errors are only told
    of; ``told`` does that for all others.
    """

    def hook(unraisable: UnraisableHookArgs) -> None:
        stop = unraisable.exc_value
        if not isinstance(stop, KeyboardInterrupt):
            told(unraisable)
            return

        def again(number: int, frame: FrameType | None) -> NoReturn:
            raise stop

        signal.signal(signal.SIGALRM, again)
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)

    return hook
