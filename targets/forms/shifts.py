"""Shifts by a type's width or more, which ONNX says give 0 and which processors take the rest of a division for."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.targets.forms.writing import Place


def write_long_shifts(model: ir.Model) -> None:
    """Every BitShift as one by less than the width, in place.

    before:  z = BitShift (x, y)
    after:   z = Where (Less (y, 8), BitShift (x, Min (y, 7)), 0)
    """
    for node in tuple(model.graph.all_nodes()):
        if node.op_type == "BitShift" and not node.domain:
            _shift(node)


def _shift(node: ir.Node) -> None:
    x, count = node.inputs
    if x is None or count is None or x.dtype is None:
        return
    kind, place = x.dtype.numpy(), Place(node)
    width = 8 * x.dtype.itemsize
    small = place.op("Less", count, place.constant(kind.type(width)), dtype=ir.DataType.BOOL)
    kept = place.op("Min", count, place.constant(kind.type(width - 1)))
    direction = node.attributes.get_string("direction") or ""
    moved = place.op("BitShift", x, kept, like=node.outputs[0], direction=direction)
    place.becomes(place.op("Where", small, moved, place.constant(np.zeros((), kind)), like=node.outputs[0]))
