"""Run a library in TVM's virtual machine, in a worker of the engine."""

from __future__ import annotations

from convertkit.engines.environments import elsewhere
from convertkit.targets.tvm.engine import engine
from convertkit.targets.tvm.runtime import SERVICE, runtime_name
from convertkit.workers.process import Worker
from convertkit.workers.running import PlacedRunner


class TvmRunner(PlacedRunner):
    """Executes the delivered library."""

    fixed = "library"

    def _begun(self) -> Worker:
        return Worker(SERVICE, elsewhere=elsewhere(engine.name))

    def _load(self, worker: Worker) -> None:
        worker.call("load", {"library": str(self._artifact.path)})

    @property
    def runtime(self) -> str:
        """What executes the library, with its version."""
        return runtime_name()
