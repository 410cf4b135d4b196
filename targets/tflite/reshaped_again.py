"""Reshapes to sizes that the model computes of its inputs' numbers, and that LiteRT would not notice to change.

Where a RESHAPE reads a value that the model has computed, and its sizes are others than in the call before, LiteRT
gives the result these sizes, but does not prepare what follows again: it keeps the sizes of the first call.  Behind a
TILE by computed numbers it is prepared for each call, and by ones a TILE changes nothing.

Sizes that follow from those of the inputs alone need none of it: with other inputs everything is prepared again.
Seen in LiteRT 2.3.0 with XNNPACK and without, in every second call of other sizes; right with a TILE in all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from convertkit.targets.tflite.builder.core import NONE
from convertkit.targets.tflite.graph import Operation, Program, Subgraph
from convertkit.targets.tflite.tensor import Tensor

_TILED = frozenset({"bool", "float32", "int32", "int64", "int8", "uint8"})
"""What TILE takes."""


def notice_new_sizes(program: Program) -> None:
    """Put such a TILE behind each of these reshapes, in place."""
    for subgraph in program.subgraphs:
        subgraph.operations = list(_with_tiles(subgraph))


def _with_tiles(subgraph: Subgraph) -> Iterator[Operation]:
    """before:  x, sizes → RESHAPE → y
    after:   x, sizes → RESHAPE → z; z, sizes · 0 + 1 → TILE → y
    """
    made_by = {result: operation for operation in subgraph.operations for result in operation.outputs}
    for operation in subgraph.operations:
        sizes = operation.inputs[1] if operation.code == "RESHAPE" and len(operation.inputs) > 1 else None
        y = operation.outputs[0] if operation.outputs else None
        if sizes is None or y is None or y.is_static or y.dtype not in _TILED or not _follows_numbers(sizes, made_by):
            yield operation
            continue
        z = Tensor(f"{y.name}_resized", y.shape, y.dtype, quantization=y.quantization)
        operation.outputs = (z,)
        yield operation
        none, ones = (Tensor(f"{y.name}_{name}", sizes.shape, sizes.dtype) for name in ("none", "ones"))
        zero, one = (Tensor(f"{y.name}_{n}", (), sizes.dtype, np.array(n, sizes.dtype)) for n in (0, 1))
        plain = {"fused_activation_function": NONE}
        yield Operation("MUL", (sizes, zero), (none,), plain, operation.origin)
        yield Operation("ADD", (none, one), (ones,), plain, operation.origin)
        yield Operation("TILE", (z, ones), (y,), {}, operation.origin)


def _follows_numbers(sizes: Tensor, made_by: Mapping[Tensor, Operation]) -> bool:
    """Whether sizes follow from the numbers of an input, not from the sizes of values alone."""
    pending, seen = [sizes], set[Tensor]()
    while pending:
        tensor = pending.pop()
        if tensor in seen or tensor.constant is not None:
            continue
        seen.add(tensor)
        maker = made_by.get(tensor)
        if maker is None:
            return True
        if maker.code != "SHAPE":
            pending += [each for each in maker.inputs if each is not None]
    return False
