"""Run a ``.mnn`` file in MNN's own runtime, in a worker."""

from __future__ import annotations

import numpy as np

from convertkit.errors import FeedError
from convertkit.stage import Feed, Outputs
from convertkit.targets.mnn.runtime import SERVICE, runtime_name
from convertkit.workers.process import Worker
from convertkit.workers.running import PlacedRunner


class MnnRunner(PlacedRunner):
    """Executes the delivered file on the CPU, in float32."""

    def _begun(self) -> Worker:
        return Worker(SERVICE)

    def _load(self, worker: Worker) -> None:
        ports = {
            "inputs": [spec.name for spec in self._artifact.inputs],
            "outputs": [[spec.name, spec.dtype] for spec in self._artifact.outputs],
        }
        worker.call("load", {"model": str(self._artifact.path), **ports})

    def run(self, feed: Feed) -> Outputs:
        """All outputs for one feed; ``FeedError`` for integers that MNN does not hold."""
        limits = np.iinfo(np.int32)
        for name, value in feed.items():
            wide = value.dtype in (np.int64, np.uint64) and value.size
            if wide and (int(value.min()) < limits.min or int(value.max()) > limits.max):
                raise FeedError(f"input {name} has integers beyond 32 bits, which is what MNN holds")
        return super().run(feed)

    @property
    def runtime(self) -> str:
        """What executes the file, with its version."""
        return runtime_name()
