"""Run a package: the program for a Qualcomm chip in the HTP simulator, else the file that was compiled."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from convertkit.around import Around
from convertkit.artifact import Artifact
from convertkit.errors import SourceError
from convertkit.feeding import encoded
from convertkit.stage import Feed, Outputs, Runner
from convertkit.targets.litert_npu.chips import CHIPS, QUALCOMM
from convertkit.targets.litert_npu.dispatch import program_of, write_context
from convertkit.targets.litert_npu.package import BEFORE, FACTS, checked, compiled_from
from convertkit.targets.qnn.runtime import SERVICE, runtime_name
from convertkit.targets.tflite.runner import TfliteRunner
from convertkit.workers.process import Worker
from convertkit.workers.running import WorkerRunner


def runner(artifact: Artifact) -> Runner:
    """For the file that the artifact is, once the digests of all files of the package are what they were."""
    facts = checked(artifact.path.parent)
    soc = artifact.path.stem.partition("_")[2]
    if artifact.path.name not in facts.sha256:
        raise SourceError(f"{artifact.path.name} is not a file that {FACTS} tells of")
    simulated = soc in facts.socs and CHIPS[soc].vendor is QUALCOMM
    return SimulatedRunner(artifact, soc) if simulated else UncompiledRunner(artifact)


class SimulatedRunner(WorkerRunner):
    """Takes the NPU's program out of the delivered file, and executes it."""

    def __init__(self, artifact: Artifact, soc: str) -> None:
        super().__init__(artifact)
        self._soc = soc

    def _begun(self) -> Worker:
        return Worker(SERVICE)

    def _load(self, worker: Worker) -> None:
        with tempfile.TemporaryDirectory(prefix="convertkit-npu-") as place:
            path = Path(place) / "context.onnx"
            write_context(program_of(self._artifact.path), path)
            worker.call("load", {"context": str(path), "soc": self._soc})

    @property
    def runtime(self) -> str:
        """What executes the program here."""
        return f"{runtime_name()}, HTP simulator"

    def run(self, feed: Feed) -> Outputs:
        """All outputs for one feed; ``FeedError`` for one that does not fit."""
        found = self._open().call("run", {}, encoded(self._artifact.inputs, feed, "program")).arrays
        return {spec.name: spec.decode(np.asarray(found[spec.name])) for spec in self._artifact.outputs}


class UncompiledRunner(Around[TfliteRunner]):
    """Executes ``model.tflite``: no simulator of the chip is here."""

    def __init__(self, artifact: Artifact) -> None:
        super().__init__(TfliteRunner(compiled_from(artifact)))

    @property
    def runtime(self) -> str:
        """What executes which file."""
        return f"{self._inner.runtime} ({BEFORE}; the NPU's program is not executed here)"

    def run(self, feed: Feed) -> Outputs:
        """All outputs for one feed."""
        return self._inner.run(feed)
