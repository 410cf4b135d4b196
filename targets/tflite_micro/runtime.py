"""TensorFlow Lite Micro itself, as its Python package brings it: reference kernels, for the machine that we are on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from convertkit.errors import MissingFramework, ToolError
from convertkit.quiet import CapturedStderr, native_stderr_captured

if TYPE_CHECKING:
    from convertkit.artifact import Array


class MicroInterpreter:
    """A model in an arena of ``arena_bytes``; ``ToolError`` with the runtime's own words where it does not fit."""

    def __init__(self, model: bytes, arena_bytes: int) -> None:
        runtime = _runtime()
        with native_stderr_captured() as captured:
            self._interpreter = _told(captured, lambda: runtime.Interpreter(model, [], arena_bytes))

    def run(self, inputs: Sequence[Array]) -> None:
        """Compute all outputs, from the state in which a model begins; inputs in the file's order."""
        with native_stderr_captured() as captured:
            _told(captured, self._interpreter.reset)
            for place, value in enumerate(inputs):
                _told(captured, partial(self._interpreter.set_input, value, place))
            _told(captured, self._interpreter.invoke)

    def output(self, place: int) -> Array:
        """An output of the last run."""
        found: Array = self._interpreter.get_output(place)
        return found


def runtime_name() -> str:
    """The runtime and its version; its package is called as the target is."""
    try:
        return f"tflite-micro {version('tflite-micro')}, reference kernels on this machine"
    except PackageNotFoundError:
        return "tflite-micro, reference kernels on this machine"


def _runtime() -> Any:
    try:
        from tflite_micro import runtime
    except ModuleNotFoundError as error:
        raise MissingFramework("tflite-micro", "tflite-micro") from error
    return runtime


def _told(captured: CapturedStderr, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (RuntimeError, ValueError) as error:
        lines = [line.strip() for line in (*captured.text.splitlines(), str(error)) if line.strip()]
        raise ToolError(f"TensorFlow Lite Micro fails: {'; '.join(lines)[:400]}") from error
