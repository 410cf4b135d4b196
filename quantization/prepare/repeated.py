"""Repeated places of an axis, in as many axes as there are, for ``--full-integer``.

before:  Reshape (Expand (Unsqueeze (x))), as heads of keys are repeated for those of queries
after:   Gather (x) of each place as often as it is repeated

NPUs take up to four axes, and Qualcomm's compiler reads a matrix that was turned wrongly where it gets a fifth.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.edit import initializer, is_same_size, producer, replaced

Size = int | ir.SymbolicDim


def repeated_places(model: ir.Model) -> None:
    """All of them, in place."""
    for node in tuple(model.graph):
        if node.op_type != "Reshape" or node.domain:
            continue
        wide = producer(node.inputs[0], "Expand")
        narrow = None if wide is None else producer(wide.inputs[0], "Unsqueeze")
        if wide is None or narrow is None or (x := narrow.inputs[0]) is None:
            continue
        shapes = [value.shape for value in (x, narrow.outputs[0], wide.outputs[0], node.outputs[0])]
        found = _places(*[[] if shape is None else list(shape) for shape in shapes])
        if found is not None:
            axis, places = found
            stored = initializer(node, places, f"{node.outputs[0].name}/places")
            replaced(node, "Gather", [x, stored], {"axis": axis})


def _places(x: list[Size], narrow: list[Size], wide: list[Size], result: list[Size]) -> tuple[int, Array] | None:
    """The axis of ``x`` that is repeated, and its places in their new order; None where something else happens."""
    rank = len(x)
    if len(narrow) != rank + 1 or len(wide) != rank + 1 or len(result) != rank:
        return None
    widened = [axis for axis in range(rank + 1) if not is_same_size(narrow[axis], wide[axis])]
    if len(widened) != 1 or narrow[widened[0]] != 1:
        return None
    (new,) = widened
    times = wide[new]
    for axis, places_first in ((new - 1, True), (new, False)):
        if not 0 <= axis < rank or not isinstance(size := x[axis], int) or not isinstance(times, int):
            continue
        others = [(one, other) for place, (one, other) in enumerate(zip(x, result, strict=True)) if place != axis]
        if result[axis] == size * times and all(is_same_size(one, other) for one, other in others):
            order = np.arange(size, dtype=np.int64)
            return axis, np.repeat(order, times) if places_first else np.tile(order, times)
    return None
