"""Work that is begun before it is known to be wanted, in one thread beside the main one.

The pipeline makes and executes a road's next artifact while it still proves the last one: what proves an artifact
spends its time in runtimes that let other threads run.  What the thread returned or raised is seen by nobody until it
is taken, so work that turns out not to be wanted leaves no trace beyond the files of its own folder.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Generic, Self, TypeVar

T = TypeVar("T")


class Ahead(Generic[T]):
    """Does one piece of work after the other; a context manager that ends when the last one has.

    Each piece is known by the folder that it writes into.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="convertkit-ahead")
        self._begun: dict[Path, Future[T]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def begin(self, folder: Path, work: Callable[[], T]) -> None:
        """Start ``work``, or queue it behind what was begun before."""
        self._begun[folder] = self._pool.submit(work)

    def take(self, folder: Path) -> T | None:
        """What the work for ``folder`` returned, once it has; None where none was begun.

        Raises what the work raised.
        """
        begun = self._begun.pop(folder, None)
        return None if begun is None else begun.result()
