"""Run a package: the file that Vela compiled, since nothing here executes the NPU's part."""

from __future__ import annotations

from convertkit.around import Around
from convertkit.artifact import Artifact
from convertkit.stage import Feed, Outputs
from convertkit.targets.ethos_u.package import compiled_from
from convertkit.targets.tflite.runner import TfliteRunner


class EthosURunner(Around[TfliteRunner]):
    """Executes ``model.tflite`` of the package, once its digest and that of the NPU's file are what they were."""

    def __init__(self, artifact: Artifact) -> None:
        super().__init__(TfliteRunner(compiled_from(artifact)))

    @property
    def runtime(self) -> str:
        """What executes which file."""
        return f"{self._inner.runtime} (model.tflite before Vela; the NPU part is not executed here)"

    def run(self, feed: Feed) -> Outputs:
        """All outputs for one feed."""
        return self._inner.run(feed)
