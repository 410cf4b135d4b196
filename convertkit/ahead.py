"""Work that is begun before it is known to be wanted, in one thread beside the main one.

The pipeline makes and executes a road's next artifact while it still proves the last one: what proves an artifact
spends its time in runtimes that let other threads run.  What the thread returned or raised is seen by nobody until it
is asked for, so work that turns out not to be wanted leaves no trace beyond the files of its own folder.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self, TypeVar

T = TypeVar("T")


class Ahead:
    """Does one piece of work after the other; a context manager that ends when the last one that began has."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="convertkit-ahead")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def begin(self, work: Callable[[], T]) -> Callable[[], T]:
        """Start ``work``, or queue it behind what was begun before.

        What is returned waits for it, and returns or raises what the work did, as often as it is called.
        """
        return self._pool.submit(work).result
