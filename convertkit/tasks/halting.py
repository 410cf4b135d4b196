"""Ending work in other threads: an exception that is raised in them at their next step of Python."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Halted(BaseException):
    """Raised inside a task that nobody waits for any longer."""


class Halting:
    """Knows which threads are at work, and ends that work.

    A call that stays outside of Python (a product of matrices, a runtime's session) is finished first.
    """

    __slots__ = ("_guard", "_threads")

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._threads: set[int] = set()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """The block may be ended by :meth:`halt`, which raises :class:`Halted` in it."""
        own = threading.get_ident()
        with self._guard:
            self._threads.add(own)
        try:
            yield
        finally:
            with self._guard:  # behind this nothing is raised any more: the thread does other things then
                self._threads.discard(own)

    def halt(self) -> None:
        """Raise :class:`Halted` in all that is at work."""
        with self._guard:
            for thread in self._threads:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(Halted))
