"""Run a module in IREE's runtime, in a worker of the engine."""

from __future__ import annotations

from convertkit.engines.environments import elsewhere
from convertkit.targets.iree.engine import engine
from convertkit.targets.iree.runtime import ENTRY, SERVICE, runtime_name
from convertkit.workers.process import Worker
from convertkit.workers.running import PlacedRunner


class IreeRunner(PlacedRunner):
    """Executes the delivered module."""

    def _begun(self) -> Worker:
        return Worker(SERVICE, elsewhere=elsewhere(engine.name))

    def _load(self, worker: Worker) -> None:
        worker.call("load", {"module": str(self._artifact.path), "entry": ENTRY})

    @property
    def runtime(self) -> str:
        """What executes the module, with its version."""
        return runtime_name()
