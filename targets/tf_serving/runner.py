"""Run a SavedModel out of the package, in TensorFlow's session, as TensorFlow Serving does."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from convertkit.errors import SourceError
from convertkit.feeding import encoded
from convertkit.stage import Feed, Outputs
from convertkit.targets.tf_serving.stage import ENVIRONMENT, SERVICE
from convertkit.workers.process import Worker
from convertkit.workers.running import WorkerRunner


class SavedModelRunner(WorkerRunner):
    """The only model of the folder ``models``, in a worker."""

    def _begun(self) -> Worker:
        return Worker(SERVICE, env=ENVIRONMENT, framework="tensorflow")

    def _load(self, worker: Worker) -> None:
        worker.call("load", {"folder": str(only_model(self._artifact.path))})

    @property
    def runtime(self) -> str:
        """What executes the model here."""
        return f"TensorFlow {_version()}"

    def run(self, feed: Feed) -> Outputs:
        """All outputs for one feed; ``FeedError`` for one that lacks an input."""
        found = self._open().call("run", {}, encoded(self._artifact.inputs, feed)).arrays
        return {spec.name: spec.decode(np.asarray(found[spec.name])) for spec in self._artifact.outputs}


def only_model(models: Path) -> Path:
    """The newest version of the only model in a folder; ``SourceError`` where there is none, or another one."""
    found = sorted(each.parent for each in models.glob("*/*/saved_model.pb"))
    if len(found) != 1:
        raise SourceError(f"{models} holds {len(found)} SavedModels; expected one")
    return found[0]


def _version() -> str:
    """Of the package that is installed, whatever it is called."""
    try:
        return version("tensorflow-cpu")
    except PackageNotFoundError:
        return version("tensorflow")
