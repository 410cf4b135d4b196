"""What stands around something that is opened and closed: a runner around a runner, a source around a source."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

T = TypeVar("T", bound=AbstractContextManager[Any])


class Around(Generic[T]):
    """Is opened and closed with what it is around."""

    def __init__(self, inner: T) -> None:
        self._inner = inner

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inner.__exit__(kind, error, trace)
