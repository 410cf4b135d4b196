"""Runners whose runtime lives in the process of a worker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Any, ClassVar, Self

import numpy as np

from convertkit.artifact import Array, Artifact, TensorSpec
from convertkit.errors import ToolError
from convertkit.feeding import encoded
from convertkit.stage import Feed, Outputs
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


class PlacedRunner(WorkerRunner):
    """Of a format that knows inputs and outputs by their places; its service is :class:`.held.HeldCalls`.

    ``fixed`` is what an artifact of fixed sizes is called.  A time holds a message to the worker and back: about a
    tenth of a millisecond.
    """

    fixed: ClassVar[str | None] = None

    def run(self, feed: Feed) -> Outputs:
        """All outputs for one feed; ``FeedError`` for one that does not fit, ``ToolError`` for other types."""
        found = self._open().call("run", self._order(), encoded(self._artifact.inputs, feed, self.fixed)).arrays
        values = [np.asarray(found[str(place)]) for place in range(len(self._artifact.outputs))]
        return {
            spec.name: spec.decode(_typed(spec, value))
            for spec, value in zip(self._artifact.outputs, values, strict=True)
        }

    def invocation(self, feed: Feed) -> Callable[[], object]:
        """A call that computes all outputs for ``feed``, which the worker holds."""
        worker = self._open()
        worker.call("place", self._order(), encoded(self._artifact.inputs, feed, self.fixed))
        return lambda: worker.call("compute")

    def _order(self) -> dict[str, list[str]]:
        return {"inputs": [spec.name for spec in self._artifact.inputs]}


def _typed(spec: TensorSpec, value: Array) -> Array:
    """``value`` in its declared type: some runtimes have integers without a sign, and flags as bytes."""
    wanted = np.dtype(spec.dtype)
    if value.dtype != wanted and not _same_bytes(value.dtype, wanted):
        raise ToolError(f"output {spec.name} comes as {value.dtype}, and the artifact says {wanted}")
    return value.astype(wanted, copy=False)


def _same_bytes(one: np.dtype[Any], other: np.dtype[Any]) -> bool:
    return one.itemsize == other.itemsize and {one.kind, other.kind} <= set("iub")
