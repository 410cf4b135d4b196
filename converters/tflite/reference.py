"""LiteRT in a process of its own: the reference for ``.tflite`` sources.

Its kernels abort the process on some broken files, so it never runs in the parent.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from convertkit.artifact import NEXT_STATE_PREFIX, STATE_PREFIX, Array, Artifact
from convertkit.converters.tflite.model import Signature
from convertkit.errors import MissingFramework, ToolError
from convertkit.stage import Feed, Outputs, Portable
from convertkit.state import initial_state
from convertkit.workers.process import Reply, Worker

_Ports = list[list[Any]]
_START = "start."


class LiteRTService:
    """Runs in the worker: one interpreter per file and signature."""

    def __init__(self) -> None:
        try:
            from ai_edge_litert.interpreter import Interpreter
        except ImportError as error:
            raise MissingFramework("ai_edge_litert", "tflite") from error
        self._make = Interpreter
        self._interpreter: Any = None
        self._kept: Any = None
        self._next: dict[str, Array] = {}

    def load(self, params: dict[str, Any], arrays: dict[str, Array]) -> Reply:
        """Open ``path``."""
        self._interpreter = self._opened(params["path"])
        return Reply()

    def _opened(self, path: str) -> Any:
        try:
            return self._make(model_path=path, num_threads=1)
        except (ValueError, RuntimeError) as error:
            raise ToolError(f"LiteRT does not load the file: {_first_line(error)}") from error

    def call(self, params: dict[str, Any], arrays: dict[str, Array]) -> Reply:
        """As :meth:`run` of a file whose variables became inputs, each call of a sequence held against the file's own.

        ``original`` is that file; ``start.NAME`` among the arrays is what the input ``NAME`` begins with.
        """
        given = {name: value for name, value in arrays.items() if not name.startswith(_START)}
        begun = {name.removeprefix(_START): value for name, value in arrays.items() if name.startswith(_START)}
        reply = self.run(params, given)
        if _same(given, begun):
            self._kept = self._opened(params["original"])
        elif not _same(given, self._next):
            self._kept = None  # a call of its own, which the file cannot be given
        self._next = {
            STATE_PREFIX + name.removeprefix(NEXT_STATE_PREFIX): value.copy()
            for name, value in reply.arrays.items()
            if name.startswith(NEXT_STATE_PREFIX)
        }
        if self._kept is not None:
            self._hold_against_original(params, given, reply.arrays)
        return reply

    def _hold_against_original(self, params: dict[str, Any], feed: dict[str, Array], got: Mapping[str, Array]) -> None:
        ports = params["original_inputs"], params["original_outputs"]
        for name, value in self._invoked(self._kept, *ports, feed, reset=False).items():
            if not _agree(got[name], value):
                raise ToolError(f"{name!r} is another one where the file's variables are inputs and outputs")

    def run(self, params: dict[str, Any], arrays: dict[str, Array]) -> Reply:
        """Outputs for one feed; state that the file keeps between calls starts at zero."""
        try:
            if params["signature"]:
                return Reply(arrays=self._run_signature(params["signature"], arrays))
            ports = params["inputs"], params["outputs"]
            return Reply(arrays=self._invoked(self._interpreter, *ports, arrays, reset=True))
        except (ValueError, RuntimeError) as error:
            raise ToolError(f"LiteRT fails on the file: {_first_line(error)}") from error

    def _run_signature(self, key: str, feed: dict[str, Array]) -> dict[str, Array]:
        self._interpreter.allocate_tensors()
        self._interpreter.reset_all_variables()
        runner = self._interpreter.get_signature_runner(key)
        return {name: np.asarray(value) for name, value in runner(**feed).items()}

    def _invoked(
        self, interpreter: Any, inputs: _Ports, outputs: _Ports, feed: dict[str, Array], *, reset: bool
    ) -> dict[str, Array]:
        """The main graph by its tensors; state that the file keeps starts at zero with ``reset``."""
        shapes = {each["index"]: tuple(each["shape"]) for each in interpreter.get_input_details()}
        for name, index in inputs:
            if shapes.get(index) != feed[name].shape:
                interpreter.resize_tensor_input(index, feed[name].shape)
        interpreter.allocate_tensors()
        if reset:
            interpreter.reset_all_variables()
        for name, index in inputs:
            interpreter.set_tensor(index, feed[name])
        interpreter.invoke()
        return {name: interpreter.get_tensor(index) for name, index in outputs}


class LiteRTRunner:
    """The parent's side: a context manager from feeds to outputs.

    The signature's key is empty for files that name none.  ``edited`` is a file with state as inputs and outputs that
    is executed in the place of the artifact's, whose own signature is ``original``.
    """

    def __init__(
        self,
        artifact: Artifact,
        signature: Signature,
        timeout_s: float | None,
        edited: Path | None = None,
        original: Signature | None = None,
    ) -> None:
        self._artifact = artifact
        self._path = edited or artifact.path
        key, inputs, outputs = signature.key, signature.inputs, signature.outputs
        self._portable = Portable("litert", self._path, key, inputs, outputs)
        self._call: dict[str, object] = {"signature": key, "inputs": inputs, "outputs": outputs}
        self._start: dict[str, Array] = {}
        if original is not None:
            self._call |= {"original": str(artifact.path), "original_inputs": original.inputs}
            self._call["original_outputs"] = original.outputs
            self._start = {f"{_START}{name}": value for name, value in initial_state(artifact).items()}
        self._worker = Worker("convertkit.converters.tflite.reference:LiteRTService", timeout_s=timeout_s)

    def portable(self) -> Portable:
        """The file, whose signature or tensors the source's names are of."""
        return self._portable

    def __enter__(self) -> Self:
        self._worker.call("load", {"path": str(self._path)})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._worker.__exit__(kind, error, trace)

    def run(self, feed: Feed) -> Outputs:
        """All outputs for one feed, in the artifact's order."""
        arrays = {spec.name: np.ascontiguousarray(feed[spec.name]) for spec in self._artifact.inputs}
        values = self._worker.call("call" if self._start else "run", self._call, arrays | self._start).arrays
        return {spec.name: values[spec.name] for spec in self._artifact.outputs}


def _same(feed: Mapping[str, Array], state: Mapping[str, Array]) -> bool:
    """Whether the feed's state is this one, bit by bit."""
    return all(feed[name].tobytes() == value.tobytes() for name, value in state.items()) and bool(state)


def _agree(got: Array, wanted: Array) -> bool:
    """Whether two ways through the same kernels gave one result; delegates may cut the two files differently."""
    if got.shape != wanted.shape:
        return False
    largest = np.abs(wanted[np.isfinite(wanted)].astype(np.float64)).max(initial=0)
    allowed = 1e-4 * largest if np.issubdtype(wanted.dtype, np.floating) else 1
    differ = np.abs(got.astype(np.float64) - wanted.astype(np.float64)) > allowed
    return not bool(differ.any())


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__
