"""Run a context binary in Qualcomm's simulator of the HTP, in a worker."""

from __future__ import annotations

import numpy as np

from convertkit.feeding import encoded
from convertkit.stage import Feed, Outputs
from convertkit.targets.qnn.context import checked_soc
from convertkit.targets.qnn.runtime import SERVICE, runtime_name
from convertkit.workers.process import Worker
from convertkit.workers.running import WorkerRunner


class QnnRunner(WorkerRunner):
    """Executes the delivered binary; no node of it may fall back to the CPU."""

    def _begun(self) -> Worker:
        return Worker(SERVICE)

    def _load(self, worker: Worker) -> None:
        worker.call("load", {"context": str(self._artifact.path), "soc": checked_soc(self._artifact.path)})

    @property
    def runtime(self) -> str:
        """What executes the binary here."""
        return f"{runtime_name()}, HTP simulator"

    def run(self, feed: Feed) -> Outputs:
        """All outputs for one feed; ``FeedError`` for one that does not fit."""
        found = self._open().call("run", {}, encoded(self._artifact.inputs, feed, "binary")).arrays
        return {spec.name: spec.decode(np.asarray(found[spec.name])) for spec in self._artifact.outputs}
