"""Run a module in IREE's runtime, in a worker of the engine."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from convertkit.engines.environments import elsewhere
from convertkit.feeding import encoded
from convertkit.stage import Feed, Outputs
from convertkit.targets.iree.engine import engine
from convertkit.targets.iree.runtime import ENTRY, SERVICE, runtime_name
from convertkit.workers.process import Worker
from convertkit.workers.running import WorkerRunner


class IreeRunner(WorkerRunner):
    """Executes the delivered module.  A time holds a message to the worker and back: about a tenth of a millisecond."""

    def _begun(self) -> Worker:
        return Worker(SERVICE, elsewhere=elsewhere(engine.name))

    def _load(self, worker: Worker) -> None:
        worker.call("load", {"module": str(self._artifact.path), "entry": ENTRY})

    @property
    def runtime(self) -> str:
        """What executes the module, with its version."""
        return runtime_name()

    def run(self, feed: Feed) -> Outputs:
        """All outputs for one feed; ``FeedError`` for one that does not fit."""
        found = self._open().call("run", self._order(), encoded(self._artifact.inputs, feed)).arrays
        values = [np.asarray(found[str(place)]) for place in range(len(self._artifact.outputs))]
        return {
            spec.name: spec.decode(value.astype(spec.dtype, copy=False))
            for spec, value in zip(self._artifact.outputs, values, strict=True)
        }

    def invocation(self, feed: Feed) -> Callable[[], object]:
        """A call that computes all outputs for ``feed``, which the worker holds."""
        worker = self._open()
        worker.call("place", self._order(), encoded(self._artifact.inputs, feed))
        return lambda: worker.call("compute")

    def _order(self) -> dict[str, list[str]]:
        return {"inputs": [spec.name for spec in self._artifact.inputs]}
