"""Runners whose runtime lives in the process of a worker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from convertkit.artifact import Artifact
from convertkit.workers.process import Worker


class WorkerRunner(ABC):
    """Loads its artifact into a worker when it is entered, and ends the worker when it is left or loading fails."""

    def __init__(self, artifact: Artifact) -> None:
        self._artifact = artifact
        self._worker: Worker | None = None
        self._ending = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as ending:
            worker = ending.enter_context(self._begun())
            self._load(worker)
            self._ending = ending.pop_all()
        self._worker = worker
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._worker = None
        self._ending.__exit__(kind, error, trace)

    @abstractmethod
    def _begun(self) -> Worker:
        """A worker with the runtime; its process starts with the first call."""

    @abstractmethod
    def _load(self, worker: Worker) -> None:
        """Let the worker load the artifact; raises where it is not one of the format."""

    def _open(self) -> Worker:
        assert self._worker is not None, "the runner is used as a context manager"
        return self._worker
