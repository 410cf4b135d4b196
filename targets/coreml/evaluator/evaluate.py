"""Run a program, operation by operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from convertkit.artifact import Array
from convertkit.errors import ToolError
from convertkit.targets.coreml.evaluator import TABLE
from convertkit.targets.coreml.package.program import Block, Operation, TensorType

Values = dict[str, Array]
Watch = Callable[[Operation, Sequence[Array]], None]
_WRITE = "write_state"


class Evaluator:
    """Runs a block again and again; constants are widened once.

    State lies in buffers that the caller holds, as an app holds what ``makeState()`` gives.
    """

    def __init__(self, block: Block) -> None:
        self._block = block
        self._constants: Values = {}
        with np.errstate(all="ignore"):
            for operation in block.operations:
                if operation.type == "const" or operation.type.startswith("constexpr_"):
                    self._constants.update(_results(operation, self._constants))
        self._steps = [
            each for each in block.operations if not any(name in self._constants for name, _ in each.outputs)
        ]
        self._last = _last_uses(self._steps, block.outputs)

    def run(self, inputs: Mapping[str, Array], watch: Watch | None = None, state: Values | None = None) -> Values:
        """The block's outputs for its inputs; ``ToolError`` names the operation that fails.

        ``state`` has the buffers by name, which the program reads and, in ``state`` itself, sets anew.
        """
        buffers = {} if state is None else state
        values: Values = {**self._constants, **inputs, **buffers}
        with np.errstate(all="ignore"):
            for place, operation in enumerate(self._steps):
                if operation.type == _WRITE:
                    name, value = self._written(operation, values)
                    buffers[name] = values[name] = value
                    continue
                found = _results(operation, values)
                values.update(found)
                if watch is not None:
                    watch(operation, list(found.values()))
                for name in self._last[place]:
                    del values[name]
        return {name: values[name] for name in self._block.outputs}

    def _written(self, operation: Operation, values: Mapping[str, Array]) -> tuple[str, Array]:
        """The buffer that an operation sets, and what it gets; ``ToolError`` where that is of another type or shape."""
        (name,), (source,) = operation.inputs["input"], operation.inputs["data"]
        value = values[source] if isinstance(source, str) else source
        kind = dict(self._block.inputs)[str(name)]
        if value.dtype.name != kind.dtype or value.shape != kind.shape:
            raise ToolError(
                f"{_WRITE} ({operation.name}) has {value.dtype.name} {list(value.shape)} for the state {name}, "
                f"which is {kind.dtype} {list(kind.shape)}"
            )
        return str(name), value


def _last_uses(steps: Sequence[Operation], outputs: Sequence[str]) -> list[list[str]]:
    """After each step, the computed values that nothing reads any more."""
    made = {name for step in steps for name, _ in step.outputs}
    last: dict[str, int] = {}
    for place, step in enumerate(steps):
        used = [each for group in step.inputs.values() for each in group if isinstance(each, str)]
        last.update({name: place for name in (*used, *(name for name, _ in step.outputs)) if name in made})
    freed: list[list[str]] = [[] for _ in steps]
    for name, place in last.items():
        if name not in outputs:
            freed[place].append(name)
    return freed


def _results(operation: Operation, values: Mapping[str, Array]) -> Values:
    """What one operation computes, in the types that the file states; ``ToolError`` where shapes disagree with it."""
    if operation.type == "const":
        return {operation.outputs[0][0]: operation.attributes["val"]}
    if operation.type not in TABLE:
        raise ToolError(f"the evaluator does not know the operation {operation.type} ({operation.name})")
    arguments = {name: _argument(name, group, values) for name, group in operation.inputs.items()}
    arguments |= {name: _wide(value) for name, value in operation.attributes.items() if name != "name"}
    try:
        found = TABLE[operation.type](**arguments)
    except (ValueError, IndexError, TypeError, AssertionError) as error:
        raise ToolError(f"{operation.type} ({operation.name}) fails: {error}") from error
    results = found if isinstance(found, tuple) else (found,)
    return {
        name: _as_stated(operation, np.asarray(result), kind)
        for (name, kind), result in zip(operation.outputs, results, strict=True)
    }


def _argument(name: str, group: Sequence[str | Array], values: Mapping[str, Array]) -> Array | list[Array]:
    found = [_wide(values[each] if isinstance(each, str) else each) for each in group]
    return found if name == "values" else found[0]


def _wide(value: Array) -> Array:
    return value.astype(np.float32) if value.dtype == np.float16 else value


def _as_stated(operation: Operation, value: Array, kind: TensorType) -> Array:
    stated = kind.shape
    agrees = len(stated) == value.ndim and all(
        size is None or size == have for size, have in zip(stated, value.shape, strict=True)
    )
    if not agrees:
        raise ToolError(
            f"{operation.type} ({operation.name}) gives the shape {list(value.shape)}, the file says "
            f"{['?' if size is None else size for size in stated]}"
        )
    if kind.dtype in ("string", "dictionary"):
        return value
    return value if value.dtype.name == kind.dtype else value.astype(kind.dtype)
