"""Running a source model in the worker that opened it."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from convertkit.artifact import Artifact
from convertkit.stage import Feed, Outputs
from convertkit.workers.process import Worker


class OpenedRunner:
    """The model that the worker's service holds, through its method ``run``.

    The worker outlives the runner, because the stage uses it too.
    """

    def __init__(self, worker: Worker, artifact: Artifact) -> None:
        self._worker = worker
        self._artifact = artifact

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def run(self, feed: Feed) -> Outputs:
        """All outputs for one feed, in the artifact's order."""
        values = self._worker.call("run", {}, {spec.name: feed[spec.name] for spec in self._artifact.inputs}).arrays
        return {spec.name: values[spec.name] for spec in self._artifact.outputs}
