"""TensorFlow Lite Micro itself, as its Python package brings it: reference kernels, for the machine that we are on."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from convertkit.errors import MissingFramework, ToolError
from convertkit.quiet import Overheard, native_stderr_kept

if TYPE_CHECKING:
    from convertkit.artifact import Array

_STEP_BYTES = 16
_USED = re.compile(r"Arena allocation (total|head|tail) (\d+) bytes")


@dataclass(frozen=True, slots=True)
class ArenaUse:
    """Bytes that the runtime says it has in use: ``head`` for values and scratch, ``tail`` for what stays."""

    head: int
    tail: int

    @property
    def total(self) -> int:
        return self.head + self.tail


class MicroInterpreter:
    """A model in an arena of ``arena_bytes``; ``ToolError`` with the runtime's own words where it does not fit."""

    def __init__(self, model: bytes, arena_bytes: int) -> None:
        runtime = _runtime()
        with native_stderr_kept() as heard:
            self._interpreter = _told(heard, lambda: runtime.Interpreter(model, [], arena_bytes))

    def run(self, inputs: Sequence[Array]) -> None:
        """Compute all outputs, from the state in which a model begins; inputs in the file's order."""
        with native_stderr_kept() as heard:
            _told(heard, self._interpreter.reset)
            for place, value in enumerate(inputs):
                _told(heard, partial(self._interpreter.set_input, value, place))
            _told(heard, self._interpreter.invoke)

    def output(self, place: int) -> Array:
        """An output of the last run."""
        found: Array = self._interpreter.get_output(place)
        return found

    def used(self) -> ArenaUse:
        """What the runtime says of its arena, after a run."""
        with native_stderr_kept() as heard:
            self._interpreter.print_allocations()
            found = {name: int(size) for name, size in _USED.findall(heard.text)}
        return ArenaUse(found["head"], found["tail"])


def runtime_name() -> str:
    """The runtime and its version; its package is called as the target is."""
    try:
        return f"tflite-micro {version('tflite-micro')}, reference kernels on this machine"
    except PackageNotFoundError:
        return "tflite-micro, reference kernels on this machine"


def least_arena(model: bytes, inputs: Sequence[Array], ample_bytes: int) -> tuple[int, ArenaUse]:
    """The arena in bytes that the model needs here, a multiple of 16, and what is in use in it.

    It may be more than what is in use: setting a model up needs memory, too.  The search goes upwards from what is in
    use, as the runtime checks little in an arena that is far too small.  ``ToolError`` where not even ``ample_bytes``
    are enough, in the runtime's words.
    """
    interpreter = MicroInterpreter(model, ample_bytes)
    interpreter.run(inputs)
    used = interpreter.used()
    size = -(-used.total // _STEP_BYTES) * _STEP_BYTES
    while size < ample_bytes and not _is_enough(model, inputs, size):
        size += _STEP_BYTES
    return size, used


def _is_enough(model: bytes, inputs: Sequence[Array], arena_bytes: int) -> bool:
    try:
        MicroInterpreter(model, arena_bytes).run(inputs)
    except ToolError:
        return False
    return True


def _runtime() -> Any:
    try:
        from tflite_micro import runtime
    except ModuleNotFoundError as error:
        raise MissingFramework("tflite-micro", "tflite-micro") from error
    return runtime


def _told(heard: Overheard, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (RuntimeError, ValueError) as error:
        lines = [line.strip() for line in (*heard.text.splitlines(), str(error)) if line.strip()]
        raise ToolError(f"TensorFlow Lite Micro fails: {'; '.join(lines)[:400]}") from error
