"""Shifts by a type's width or more, which ONNX says give 0 and which processors take the rest of a division for."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.targets.forms.writing import Place


def write_long_shifts(model: ir.Model, *, holds_signed: bool = False) -> None:
    """Every BitShift as one by less than the width, in place.

    before:  z = BitShift (x, y)
    after:   z = Where (Less (y, 8), BitShift (x, Min (y, 7)), 0)

    A runtime that ``holds_signed`` has unsigned integers as signed ones: what is below 0 there reaches the width, too.
    """
    for node in tuple(model.graph.all_nodes()):
        if node.op_type == "BitShift" and not node.domain:
            _shift(node, holds_signed=holds_signed)


def _shift(node: ir.Node, *, holds_signed: bool) -> None:
    x, count = node.inputs
    if x is None or count is None or x.dtype is None:
        return
    kind, place = x.dtype.numpy(), Place(node)
    width = 8 * x.dtype.itemsize
    if holds_signed:
        below = place.op("Less", count, place.constant(kind.type(0)), dtype=ir.DataType.BOOL)
        count = place.op("Where", below, place.constant(kind.type(width)), count, like=count)
    small = place.op("Less", count, place.constant(kind.type(width)), dtype=ir.DataType.BOOL)
    kept = place.op("Min", count, place.constant(kind.type(width - 1)))
    direction = node.attributes.get_string("direction") or ""
    moved = place.op("BitShift", x, kept, like=node.outputs[0], direction=direction)
    place.becomes(place.op("Where", small, moved, place.constant(np.zeros((), kind)), like=node.outputs[0]))
