"""Showing that long work advances: a bar on a terminal, nothing elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

T = TypeVar("T")


class Progress(Protocol):
    """Where long work reports how far it is."""

    def track(self, items: Iterable[T], total: int | None, title: str) -> Iterator[T]:
        """Yield ``items`` and show their progress under ``title``."""
        ...

    def status(self, title: str) -> None:
        """Say what is being done now."""
        ...

    def overall(self, share: float, left_s: float | None) -> None:
        """Say how far the whole command is: a share from 0 to 1, and the seconds that it still takes, if known."""
        ...

    def warn(self, warning: str) -> None:
        """Say at once what the user may want to stop the work for."""
        ...


class Silent:
    """Shows nothing: the default in Python, in CI and where stderr is not a terminal."""

    def track(self, items: Iterable[T], total: int | None, title: str) -> Iterator[T]:
        yield from items

    def status(self, title: str) -> None:
        return

    def overall(self, share: float, left_s: float | None) -> None:
        return

    def warn(self, warning: str) -> None:
        return
