"""Run a context binary in Qualcomm's simulator of the HTP, in a worker."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import numpy as np

from convertkit.artifact import Artifact
from convertkit.feeding import encoded
from convertkit.stage import Feed, Outputs
from convertkit.targets.qnn.context import checked_soc
from convertkit.targets.qnn.runtime import SERVICE, runtime_name
from convertkit.workers.process import Worker


class QnnRunner:
    """Executes the delivered binary; no node of it may fall back to the CPU."""

    def __init__(self, artifact: Artifact) -> None:
        self._artifact = artifact
        self._worker: Worker | None = None

    def __enter__(self) -> Self:
        soc = checked_soc(self._artifact.path)
        self._worker = Worker(SERVICE).__enter__()
        self._worker.call("load", {"context": str(self._artifact.path), "soc": soc})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._worker is not None:
            self._worker.__exit__(kind, error, trace)
        self._worker = None

    @property
    def runtime(self) -> str:
        """What executes the binary here."""
        return f"{runtime_name()}, HTP simulator"

    def run(self, feed: Feed) -> Outputs:
        """All outputs for one feed; ``FeedError`` for one that does not fit."""
        assert self._worker is not None, "the runner is used as a context manager"
        found = self._worker.call("run", {}, encoded(self._artifact.inputs, feed, "binary")).arrays
        return {spec.name: spec.decode(np.asarray(found[spec.name])) for spec in self._artifact.outputs}
