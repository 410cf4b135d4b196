"""Runners of packages: the model is taken out of the finished package and executed as its own target's artifact is."""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from convertkit.artifact import Artifact
from convertkit.errors import Unsupported
from convertkit.onnx.runner import OnnxRunner, optimised_runner
from convertkit.operators import Estimate, Memory, Operator
from convertkit.stage import Feed, Outputs, Portable
from convertkit.targets.mobile.formats import format_of
from convertkit.targets.ort_mobile.runner import OrtRunner
from convertkit.targets.tflite.runner import TfliteRunner


class PackagedRunner(ABC):
    """A context manager around the runner of the model that :meth:`model` finds in a package."""

    def __init__(self, artifact: Artifact) -> None:
        self._artifact = artifact
        self._open = ExitStack()
        self._runner: TfliteRunner | OnnxRunner | None = None

    @abstractmethod
    def model(self, artifact: Artifact) -> bytes:
        """The model out of the package of ``artifact``."""

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            model = self.model(self._artifact)
            path = Path(opening.enter_context(tempfile.TemporaryDirectory()), f"packaged.{format_of(model)}")
            path.write_bytes(model)
            runner = _runner(replace(self._artifact, path=path), model)
            opening.enter_context(runner)
            self._runner = runner
            self._open = opening.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner = None
        self._open.close()

    @property
    def runtime(self) -> str:
        """What executes the model, with its version."""
        return f"{_runner(self._artifact, self.model(self._artifact)).runtime}, out of the package"

    def portable(self) -> Portable:
        """The model, out of the package."""
        assert self._runner is not None, "the runner is used as a context manager"
        return self._runner.portable()

    def run(self, feed: Feed) -> Outputs:
        """All outputs for one feed."""
        assert self._runner is not None, "the runner is used as a context manager"
        return self._runner.run(feed)


def _runner(packaged: Artifact, model: bytes) -> TfliteRunner | OnnxRunner:
    kind = format_of(model)
    if kind == "tflite":
        return TfliteRunner(packaged)
    return OrtRunner(packaged) if kind == "ort" else optimised_runner(packaged)


def operators_of(model: bytes) -> tuple[Operator, ...]:
    """The operators of a packaged model; none of a ``.ort`` file, which is not read for them."""
    from convertkit.onnx.inspection import operators as of_onnx
    from convertkit.targets.tflite.inspection import operators as of_tflite

    kind = format_of(model)
    if kind == "ort":
        return ()
    with _written(model) as path:
        return of_tflite(path) if kind == "tflite" else of_onnx(path)


def estimates_of(model: bytes, devices: Sequence[str]) -> tuple[Estimate, ...]:
    """Of a packaged model; ``Unsupported`` for what is not a TFLite file, and as the ``tflite`` target raises it."""
    from convertkit.targets.tflite.costs.estimate import estimates

    if format_of(model) != "tflite":
        raise Unsupported("no cost table is of ONNX Runtime on a phone", subject="the packaged model")
    with _written(model) as path:
        return estimates(path, devices)


def memory_of(model: bytes) -> Memory | None:
    """What one instance of a packaged TFLite file holds, None of another model."""
    from convertkit.targets.tflite.memory import memory

    if format_of(model) != "tflite":
        return None
    with _written(model) as path:
        return memory(path)


@contextmanager
def _written(model: bytes) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model")
        path.write_bytes(model)
        yield path
