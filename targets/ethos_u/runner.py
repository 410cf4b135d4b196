"""Run a package: the file that Vela compiled, since nothing here executes the NPU's part."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from convertkit.artifact import Artifact
from convertkit.stage import Feed, Outputs
from convertkit.targets.ethos_u.package import compiled_from
from convertkit.targets.tflite.runner import TfliteRunner


class EthosURunner:
    """Executes ``model.tflite`` of the package, once its digest and that of the NPU's file are what they were."""

    def __init__(self, artifact: Artifact) -> None:
        self._inner = TfliteRunner(compiled_from(artifact))

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inner.__exit__(kind, error, trace)

    @property
    def runtime(self) -> str:
        """What executes which file."""
        return f"{self._inner.runtime} (model.tflite before Vela; the NPU part is not executed here)"

    def run(self, feed: Feed) -> Outputs:
        """All outputs for one feed."""
        return self._inner.run(feed)
