"""Run a package in our own evaluator, which reads it back from its bytes."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

import numpy as np

from convertkit.artifact import Array, Artifact, TensorSpec
from convertkit.errors import FeedError
from convertkit.stage import Feed, Outputs
from convertkit.targets.coreml.evaluator.evaluate import Evaluator
from convertkit.targets.coreml.package.program import Program, TensorType, read_package

RUNTIME = "MIL evaluator (evaluated, not run on Apple hardware)"


class CoreMLRunner:
    """Executes the ML program as its operations are documented, float16 rounded after each."""

    def __init__(self, artifact: Artifact) -> None:
        self._artifact = artifact
        self._program: Program | None = None
        self._evaluator: Evaluator | None = None

    def __enter__(self) -> Self:
        self._program = read_package(self._artifact.path)
        self._evaluator = Evaluator(self._program.block)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._program = self._evaluator = None

    @property
    def runtime(self) -> str:
        """What executes the package."""
        return RUNTIME

    def run(self, feed: Feed) -> Outputs:
        """All outputs for one feed; ``FeedError`` for what the package does not take."""
        program, evaluator = self._program, self._evaluator
        assert program is not None, "the runner is used as a context manager"
        assert evaluator is not None
        inputs = encoded(self._artifact.inputs, program.block.inputs, feed)
        found = evaluator.run(inputs)
        pairs = zip(self._artifact.outputs, program.block.outputs, strict=True)
        return {spec.name: spec.decode(_as_source(found[name], spec)) for spec, name in pairs}


def encoded(specs: Sequence[TensorSpec], ports: Sequence[tuple[str, TensorType]], feed: Feed) -> dict[str, Array]:
    """A feed as the package takes it, by the package's names; ``FeedError`` for what it does not take."""
    found: dict[str, Array] = {}
    for spec, (name, kind) in zip(specs, ports, strict=True):
        if spec.name not in feed:
            raise FeedError(f"the feed has no array for input {spec.name}")
        value = spec.encode(np.asarray(feed[spec.name]))
        found[name] = as_package(spec.name, value, kind)
    return found


def as_package(name: str, value: Array, kind: TensorType) -> Array:
    """In the package's type and rank; ``FeedError`` for integers that it cannot hold, and for other sizes."""
    if kind.dtype == "int32" and value.dtype.kind in "iu" and value.size:
        limits = np.iinfo(np.int32)
        if int(value.min()) < limits.min or int(value.max()) > limits.max:
            raise FeedError(f"input {name} has integers beyond 32 bits, which is what Core ML holds")
    if value.ndim == 0 and kind.shape == (1,):
        value = value.reshape(1)
    fits = len(kind.shape) == value.ndim and all(a in (None, b) for a, b in zip(kind.shape, value.shape, strict=True))
    if not fits:
        raise FeedError(f"input {name} has the shape {value.shape}, the package {kind.shape}")
    return value.astype(kind.dtype)


def _as_source(value: Array, spec: TensorSpec) -> Array:
    return value.reshape(()) if not spec.shape and value.size == 1 else value
