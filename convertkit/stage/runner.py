"""What executes an artifact: inputs in, outputs out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol, Self, runtime_checkable

from convertkit.artifact import Array, Artifact

Feed = Mapping[str, Array]
"""One call's inputs by name, in the source's layout and dtype, batch dimension included."""

Outputs = dict[str, Array]
"""One call's outputs by name, in the source's layout and dtype, in the artifact's order."""


class Runner(Protocol):
    """Executes one artifact: a context manager from feeds to outputs, for any batch the artifact takes."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    def run(self, feed: Feed) -> Outputs:
        """Compute all outputs of the artifact for one feed."""
        ...


@runtime_checkable
class NamedRunner(Protocol):
    """A runner that tells what executes its artifact: for some only once it has."""

    @property
    def runtime(self) -> str:
        """Name and version, such as ``ONNX Runtime 1.31.1``."""
        ...


@dataclass(frozen=True, slots=True)
class Portable:
    """A model file and the runtime that executes it, here or on another processor.

    A ``signature`` of LiteRT finds inputs and outputs by their names; without one ``inputs`` and ``outputs`` are pairs
    of a name and its tensor's index, and empty where the names are those of the file's tensors.
    """

    runtime: Literal["litert", "onnxruntime"]
    path: Path
    signature: str = ""
    inputs: tuple[tuple[str, int], ...] = ()
    outputs: tuple[tuple[str, int], ...] = ()


@runtime_checkable
class PortableRunner(Runner, Protocol):
    """A runner of one file in a runtime that other processors have, too."""

    def portable(self) -> Portable:
        """The file, which is there while the runner is open."""
        ...


@runtime_checkable
class BoundedRunner(Runner, Protocol):
    """A runner whose runtime can be stopped, as inputs may make a loop of the model endless."""

    def run_within(self, feed: Feed, seconds: float) -> Outputs:
        """What ``run`` gives; ``ToolError`` where that takes longer."""
        ...


class RunnerFactory(Protocol):
    """What an entry point of ``convertkit.runners`` holds, named after the format it executes."""

    def __call__(self, artifact: Artifact) -> Runner: ...
