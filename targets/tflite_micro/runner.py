"""Run a package in TensorFlow Lite Micro: the array of ``model.cc``, in the arena that ``model.h`` states."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import numpy as np

from convertkit.artifact import Array, Artifact
from convertkit.errors import FeedError
from convertkit.stage import Feed, Outputs
from convertkit.targets.tflite_micro.c_array import read_model
from convertkit.targets.tflite_micro.file import FileTensor, read_graphs
from convertkit.targets.tflite_micro.headers import read_arena
from convertkit.targets.tflite_micro.runtime import MicroInterpreter, runtime_name


class TfliteMicroRunner:
    """Executes what firmware would compile, not the ``model.tflite`` that lies beside it."""

    def __init__(self, artifact: Artifact) -> None:
        self._artifact = artifact
        self._interpreter: MicroInterpreter | None = None
        self._inputs: tuple[FileTensor, ...] = ()
        self._outputs: tuple[str, ...] = ()

    def __enter__(self) -> Self:
        folder = self._artifact.path.parent
        model = read_model(folder / "model.cc")
        main = read_graphs(model)[0]
        self._inputs = tuple(main.tensors[index] for index in main.inputs)
        self._outputs = tuple(main.tensors[index].name for index in main.outputs)
        self._interpreter = MicroInterpreter(model, read_arena(folder / "model.h"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._interpreter = None

    @property
    def runtime(self) -> str:
        """What executes the package, with its version."""
        return runtime_name()

    def run(self, feed: Feed) -> Outputs:
        """All outputs for one feed; ``FeedError`` for sizes that the package does not have."""
        interpreter = self._interpreter
        assert interpreter is not None, "the runner is used as a context manager"
        encoded = self._encoded(feed)
        interpreter.run([encoded[tensor.name] for tensor in self._inputs])
        found = {name: interpreter.output(place) for place, name in enumerate(self._outputs)}
        return {
            spec.name: spec.decode(np.asarray(found[spec.name]).reshape(_sizes(spec.shape)))
            for spec in self._artifact.outputs
        }

    def _encoded(self, feed: Feed) -> dict[str, Array]:
        shapes = {tensor.name: tensor.shape for tensor in self._inputs}
        encoded: dict[str, Array] = {}
        for spec in self._artifact.inputs:
            if spec.name not in feed:
                raise FeedError(f"no array for input {spec.name}")
            encoded[spec.name] = value = spec.encode(np.asarray(feed[spec.name]))
            if value.shape != shapes[spec.name]:
                raise FeedError(f"input {spec.name} has the shape {value.shape}, the package {shapes[spec.name]}")
        return encoded


def _sizes(shape: tuple[int | str, ...]) -> tuple[int, ...]:
    return tuple(int(size) for size in shape)
