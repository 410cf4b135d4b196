"""Run a TFLite artifact in LiteRT with its default delegate, as an app does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from convertkit.artifact import Array, Artifact
from convertkit.errors import FeedError, MissingFramework, ToolError
from convertkit.quiet import native_stderr_silent
from convertkit.stage import Feed, Outputs, Portable

if TYPE_CHECKING:
    from ai_edge_litert.interpreter import Interpreter

    from convertkit.probing import Probe


class TfliteRunner:
    """In-process interpreter, XNNPACK included; inputs of other sizes resize the model.

    ``reference`` uses the plain C++ reference kernels instead, which microcontrollers share.
    """

    def __init__(self, artifact: Artifact, *, threads: int = 1, reference: bool = False) -> None:
        self._artifact = artifact
        self._threads = threads
        self._reference = reference
        self._interpreter: Interpreter | None = None

    def __enter__(self) -> Self:
        try:
            from ai_edge_litert import interpreter
        except ModuleNotFoundError as error:
            raise MissingFramework("ai-edge-litert", "tflite") from error
        resolvers = interpreter.OpResolverType
        try:
            with native_stderr_silent():  # LiteRT announces its delegate on every load and has no switch for it
                self._interpreter = interpreter.Interpreter(
                    model_path=str(self._artifact.path),
                    num_threads=self._threads,
                    experimental_op_resolver_type=resolvers.BUILTIN_REF if self._reference else resolvers.AUTO,
                )
                self._allocate(self._interpreter)
        except (RuntimeError, ValueError) as error:
            raise ToolError(f"LiteRT does not load {self._artifact.path.name}: {_brief(error)}") from error
        return self

    def _allocate(self, interpreter: Interpreter) -> None:
        """Allocate for the sizes that the file states: one for each dynamic size, which may be less than a window."""
        try:
            interpreter.allocate_tensors()
        except RuntimeError:
            if not any(isinstance(size, str) for spec in self._artifact.inputs for size in spec.shape):
                raise  # else the first feed resizes the inputs, as every user's does

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._interpreter = None

    def run(self, feed: Feed) -> Outputs:
        """All outputs for one feed; ``ToolError`` where the runtime fails."""
        interpreter = self._laid(feed)
        with self._told():
            interpreter.reset_all_variables()  # fused recurrent kernels keep their state from call to call
            interpreter.invoke()
        outputs = {detail["name"]: detail for detail in interpreter.get_output_details()}
        return {spec.name: spec.decode(_read(interpreter, outputs[spec.name])) for spec in self._artifact.outputs}

    @property
    def runtime(self) -> str:
        """What executes the artifact, with its version."""
        kernels = "reference kernels" if self._reference else "XNNPACK"
        try:
            return f"LiteRT {version('ai-edge-litert')}, {kernels}"
        except PackageNotFoundError:  # a nightly build is a package of another name
            return f"LiteRT, {kernels}"

    def portable(self) -> Portable:
        """The file, whose tensors have the artifact's names."""
        return Portable("litert", self._artifact.path)

    def with_threads(self, count: int) -> TfliteRunner:
        """The same with so many threads."""
        return TfliteRunner(self._artifact, threads=count, reference=self._reference)

    def probe(self) -> Probe:
        """What looks into the file."""
        from convertkit.targets.tflite.probe import TfliteProbe

        return TfliteProbe(self._artifact)

    def invocation(self, feed: Feed) -> Callable[[], object]:
        """A call that computes all outputs for ``feed``, which lies in the interpreter already."""
        invoke: Callable[[], object] = self._laid(feed).invoke
        return invoke

    def _laid(self, feed: Feed) -> Interpreter:
        """The interpreter with the feed in its input tensors."""
        interpreter = self._interpreter
        assert interpreter is not None, "the runner is used as a context manager"
        places = _places(interpreter)
        encoded: dict[str, Array] = {}
        for spec in self._artifact.inputs:
            if spec.name not in feed:
                raise FeedError(f"no array for input {spec.name}")
            encoded[spec.name] = spec.encode(np.asarray(feed[spec.name]))
        with self._told():
            _resize(interpreter, places, encoded)
            for name, value in encoded.items():
                interpreter.set_tensor(places[name], value)
        return interpreter

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (RuntimeError, ValueError) as error:
            raise ToolError(f"LiteRT fails on {self._artifact.path.name}: {_brief(error)}") from error


def _read(interpreter: Interpreter, output: Mapping[str, Any]) -> Array:
    """An output; LiteRT has no memory to hand out for one that turns out to have no elements."""
    if 0 in output["shape"]:
        return np.zeros(tuple(output["shape"]), output["dtype"])
    return np.asarray(interpreter.get_tensor(output["index"]))


def _places(interpreter: Interpreter) -> dict[str, int]:
    """Tensor indices of the inputs by name."""
    return {detail["name"]: detail["index"] for detail in interpreter.get_input_details()}


def _resize(interpreter: Interpreter, places: dict[str, int], feed: dict[str, Array]) -> None:
    details = {detail["name"]: detail for detail in interpreter.get_input_details()}
    changed = [name for name, value in feed.items() if tuple(details[name]["shape"]) != value.shape]
    for name in changed:
        interpreter.resize_tensor_input(places[name], feed[name].shape)
    if changed:
        with native_stderr_silent():
            interpreter.allocate_tensors()


def _brief(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:400] if lines else type(error).__name__
