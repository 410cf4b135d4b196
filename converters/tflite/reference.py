"""LiteRT in a process of its own: the reference for ``.tflite`` sources.

Its kernels abort the process on some broken files, so it never runs in the parent.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

import numpy as np

from convertkit.artifact import Array, Artifact
from convertkit.errors import MissingFramework, ToolError
from convertkit.stage import Feed, Outputs, Portable
from convertkit.workers.process import Reply, Worker


class LiteRTService:
    """Runs in the worker: one interpreter per file and signature."""

    def __init__(self) -> None:
        try:
            from ai_edge_litert.interpreter import Interpreter
        except ImportError as error:
            raise MissingFramework("ai_edge_litert", "tflite") from error
        self._make = Interpreter
        self._interpreter: Any = None

    def load(self, params: dict[str, Any], arrays: dict[str, Array]) -> Reply:
        """Open ``path``."""
        try:
            self._interpreter = self._make(model_path=params["path"], num_threads=1)
        except (ValueError, RuntimeError) as error:
            raise ToolError(f"LiteRT does not load the file: {_first_line(error)}") from error
        return Reply()

    def run(self, params: dict[str, Any], arrays: dict[str, Array]) -> Reply:
        """Outputs for one feed; state that the file keeps between calls starts at zero."""
        try:
            if params["signature"]:
                return Reply(arrays=self._run_signature(params["signature"], arrays))
            return Reply(arrays=self._run_main(params["inputs"], params["outputs"], arrays))
        except (ValueError, RuntimeError) as error:
            raise ToolError(f"LiteRT fails on the file: {_first_line(error)}") from error

    def _run_signature(self, key: str, feed: dict[str, Array]) -> dict[str, Array]:
        self._interpreter.allocate_tensors()
        self._interpreter.reset_all_variables()
        runner = self._interpreter.get_signature_runner(key)
        return {name: np.asarray(value) for name, value in runner(**feed).items()}

    def _run_main(self, inputs: list[list[Any]], outputs: list[list[Any]], feed: dict[str, Array]) -> dict[str, Array]:
        shapes = {each["index"]: tuple(each["shape"]) for each in self._interpreter.get_input_details()}
        for name, index in inputs:
            if shapes.get(index) != feed[name].shape:
                self._interpreter.resize_tensor_input(index, feed[name].shape)
        self._interpreter.allocate_tensors()
        self._interpreter.reset_all_variables()
        for name, index in inputs:
            self._interpreter.set_tensor(index, feed[name])
        self._interpreter.invoke()
        return {name: self._interpreter.get_tensor(index) for name, index in outputs}


class LiteRTRunner:
    """The parent's side: a context manager from feeds to outputs.

    ``inputs`` and ``outputs`` are pairs of public name and tensor index; ``signature`` is empty for
    files that name none.
    """

    def __init__(
        self,
        artifact: Artifact,
        signature: str,
        inputs: tuple[tuple[str, int], ...],
        outputs: tuple[tuple[str, int], ...],
        timeout_s: float | None,
    ) -> None:
        self._artifact = artifact
        self._portable = Portable("litert", artifact.path, signature, inputs, outputs)
        self._call = {"signature": signature, "inputs": inputs, "outputs": outputs}
        self._worker = Worker("convertkit.converters.tflite.reference:LiteRTService", timeout_s=timeout_s)

    def portable(self) -> Portable:
        """The file, whose signature or tensors the source's names are of."""
        return self._portable

    def __enter__(self) -> Self:
        self._worker.call("load", {"path": str(self._artifact.path)})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._worker.__exit__(kind, error, trace)

    def run(self, feed: Feed) -> Outputs:
        """All outputs for one feed, in the artifact's order."""
        arrays = {spec.name: np.ascontiguousarray(feed[spec.name]) for spec in self._artifact.inputs}
        values = self._worker.call("run", self._call, arrays).arrays
        return {spec.name: values[spec.name] for spec in self._artifact.outputs}


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__
