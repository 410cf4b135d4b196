"""Live things that several tasks use one after the other, such as a framework's worker with a model in it."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar, cast

R = TypeVar("R")

_FOR_EVER, _NOT_AT_ALL = -1.0, 0.0
"""How long the end waits for a holder, in seconds as locks take them."""


class _Slot:
    """One live thing: who opens or uses it holds ``lock``; ``opened`` and ``value`` are set while it is open.

    ``is_left`` where the end did not wait for the holder, who closes it then.
    """

    __slots__ = ("is_left", "lock", "opened", "owner", "value")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.is_left = False
        self.owner: int | None = None
        self.opened: AbstractContextManager[Any] | None = None
        self.value: Any = None


class Resources:
    """Opens live things when they are first asked for, and closes them at the end in reverse order.

    It may be shared by threads and is the end of everything opened through it, also after errors and Ctrl-C.
    """

    __slots__ = ("_closed", "_guard", "_order", "_root", "_slots")

    def __init__(self, root: Path | None = None) -> None:
        self._root = root
        self._guard = threading.Lock()
        self._slots: dict[str, _Slot] = {}
        self._order: list[_Slot] = []
        self._closed = False

    def __enter__(self) -> Resources:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(_FOR_EVER if kind is None or issubclass(kind, Exception) else _NOT_AT_ALL)  # Ctrl-C

    @contextmanager
    def held(self, key: str, make: Callable[[], AbstractContextManager[R]]) -> Iterator[R]:
        """The thing called ``key`` for as long as the block takes; ``make`` opens it where it is not open.

        One holder at a time; others wait.  Where the block fails, the thing may be broken: it is closed, and the next
        holder gets a new one.  Raises ``RuntimeError`` where a thread asks for what it holds already.
        """
        with self._guard:
            slot = self._slots.setdefault(key, _Slot())
        if slot.owner == threading.get_ident():
            raise RuntimeError(f"{key} is held by this thread already")
        with slot.lock:
            slot.owner = threading.get_ident()
            try:
                self._open(slot, make, key)
                try:
                    yield cast(R, slot.value)
                except BaseException as error:
                    self._drop(slot, error)
                    raise
            finally:
                slot.owner = None
                if slot.is_left:
                    _exit(slot)

    def folder(self, name: str) -> Path:
        """A new folder for the files of a live thing, below ``root`` or in the system's temporary folder."""
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self._root))

    def forget(self, key: str) -> None:
        """Close the thing called ``key``, where it is open: whoever asks for it again gets a new one."""
        with self._guard:
            slot = self._slots.get(key)
        if slot is not None:
            _close(slot)

    def close(self) -> None:
        """Close everything, the last opened first; whoever holds something is waited for."""
        self._end(_FOR_EVER)

    def _end(self, patience_s: float) -> None:
        """Close everything; a holder that is waited for in vain closes what it holds when it comes to its end."""
        with self._guard:
            self._closed = True
            order, self._order = self._order, []
        with ExitStack() as stack:
            for slot in order:
                stack.callback(_close, slot, patience_s)

    def _open(self, slot: _Slot, make: Callable[[], AbstractContextManager[Any]], key: str) -> None:
        if slot.opened is not None:
            return
        with self._guard:
            if self._closed:
                raise RuntimeError(f"{key} is asked for after everything was closed")
        manager = make()
        slot.value = manager.__enter__()
        slot.opened = manager
        with self._guard:
            if not self._closed:
                self._order.append(slot)
                return
        _exit(slot)
        raise RuntimeError(f"{key} was opened while everything was closed")

    def _drop(self, slot: _Slot, error: BaseException) -> None:
        """Close after a failure, which the thing is told of, and which stays what the caller sees."""
        try:
            _exit(slot, type(error), error, error.__traceback__)
        except Exception as second:  # noqa: BLE001 - a note of the first one
            if second is not error:
                error.add_note(f"closing after this failed, too: {type(second).__name__}: {second}")


def _close(slot: _Slot, patience_s: float = _FOR_EVER) -> None:
    if not slot.lock.acquire(timeout=patience_s):
        slot.is_left = True
        return
    try:
        _exit(slot)
    finally:
        slot.lock.release()


def _exit(
    slot: _Slot,
    kind: type[BaseException] | None = None,
    error: BaseException | None = None,
    trace: TracebackType | None = None,
) -> None:
    opened, slot.opened, slot.value = slot.opened, None, None
    if opened is not None:
        opened.__exit__(kind, error, trace)
