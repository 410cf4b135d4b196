"""Run a portable artifact in XLA, in a worker."""

from __future__ import annotations

from importlib.metadata import version

from convertkit.workers.process import Worker
from convertkit.workers.running import PlacedRunner

SERVICE = "convertkit.targets.stablehlo.running:RunningService"
ENVIRONMENT = {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}


class StableHloRunner(PlacedRunner):
    """Executes the delivered file."""

    fixed = "artifact"

    def _begun(self) -> Worker:
        return Worker(SERVICE, env=ENVIRONMENT)

    def _load(self, worker: Worker) -> None:
        worker.call("load", {"artifact": str(self._artifact.path)})

    @property
    def runtime(self) -> str:
        """What executes the program, with its version."""
        return f"XLA of jaxlib {version('jaxlib')}"
