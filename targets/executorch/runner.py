"""Run a program in ExecuTorch's own runtime, in a worker."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from convertkit.feeding import encoded
from convertkit.stage import Feed, Outputs
from convertkit.targets.executorch.runtime import RUNTIME, SERVICE, runtime_name
from convertkit.workers.process import Worker
from convertkit.workers.running import WorkerRunner


class ExecuTorchRunner(WorkerRunner):
    """Executes the delivered file.  A time holds a message to the worker and back: about a tenth of a millisecond."""

    def _begun(self) -> Worker:
        return Worker(SERVICE, framework=RUNTIME)

    def _load(self, worker: Worker) -> None:
        worker.call("load", {"program": str(self._artifact.path)})

    @property
    def runtime(self) -> str:
        """What executes the program, with its version."""
        return runtime_name()

    def run(self, feed: Feed) -> Outputs:
        """All outputs for one feed; ``FeedError`` for one that does not fit."""
        found = self._open().call("run", self._order(), encoded(self._artifact.inputs, feed, "program")).arrays
        return {
            spec.name: spec.decode(np.asarray(found[str(place)])) for place, spec in enumerate(self._artifact.outputs)
        }

    def invocation(self, feed: Feed) -> Callable[[], object]:
        """A call that computes all outputs for ``feed``, which the worker holds."""
        worker = self._open()
        worker.call("place", self._order(), encoded(self._artifact.inputs, feed, "program"))
        return lambda: worker.call("compute")

    def _order(self) -> dict[str, list[str]]:
        return {"inputs": [spec.name for spec in self._artifact.inputs]}
