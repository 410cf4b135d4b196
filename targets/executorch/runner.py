"""Run a program in ExecuTorch's own runtime, in a worker."""

from __future__ import annotations

from convertkit.targets.executorch.runtime import RUNTIME, SERVICE, runtime_name
from convertkit.workers.process import Worker
from convertkit.workers.running import PlacedRunner


class ExecuTorchRunner(PlacedRunner):
    """Executes the delivered file."""

    fixed = "program"

    def _begun(self) -> Worker:
        return Worker(SERVICE, framework=RUNTIME)

    def _load(self, worker: Worker) -> None:
        worker.call("load", {"program": str(self._artifact.path)})

    @property
    def runtime(self) -> str:
        """What executes the program, with its version."""
        return runtime_name()
