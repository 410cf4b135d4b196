"""Triangles of matrices whose sizes are only known at run time."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.targets.forms.writing import Place, Size, dims


def write_triangle(node: ir.Node) -> None:
    """A Trilu with a dynamic number of rows or columns as a selection by places, in place; others stay.

    before:  y = Trilu <upper = 1> (x, k)
    after:   y = Where (GreaterOrEqual (columns - rows, k), x, 0)
    """
    x, sizes = node.inputs[0], dims(node.inputs[0])
    if x is None or x.dtype is None or sizes is None or all(isinstance(size, int) for size in sizes[-2:]):
        return
    place = Place(node)
    shift = node.inputs[1] if len(node.inputs) > 1 and node.inputs[1] is not None else place.constant(np.int64(0))
    shape = place.op("Shape", x, dtype=ir.DataType.INT64, shape=(len(sizes),))
    rows, columns = (_counted(place, shape, sizes, axis) for axis in (-2, -1))
    distance = place.op("Sub", columns, rows, shape=sizes[-2:])
    within = "GreaterOrEqual" if node.attributes.get_int("upper", 1) else "LessOrEqual"
    kept = place.op(within, distance, shift, dtype=ir.DataType.BOOL)
    if x.dtype == ir.DataType.BOOL:
        place.becomes(place.op("And", kept, x, like=x))
    else:
        place.becomes(place.op("Where", kept, x, place.constant(np.zeros((), x.dtype.numpy())), like=x))


def _counted(place: Place, shape: ir.Value, sizes: tuple[Size, ...], axis: int) -> ir.Value:
    """The places along one of the last two axes, as a column or a row."""
    size = place.op("Gather", shape, place.constant(np.int64(axis)), shape=(), axis=0)
    zero, one = (place.constant(np.int64(number)) for number in (0, 1))
    line = place.op("Range", zero, size, one, shape=(sizes[axis],))
    view = (sizes[axis], 1) if axis == -2 else (1, sizes[axis])
    return place.op("Unsqueeze", line, place.constant(np.array([0 if axis == -1 else 1])), shape=view)
