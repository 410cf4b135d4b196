"""Operators that IREE 3.13 computes differently or does not import, in forms that it computes as ONNX says."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.targets.forms.functions import expand_functions
from convertkit.targets.forms.writing import Place

_BODIES = frozenset({"Attention"})
"""What the importer lacks, and ONNX gives a body of operators that it has."""


def write_exact_forms(model: ir.Model) -> None:
    """Rewrite in place."""
    expand_functions(model, lambda node: node.op_type not in _BODIES)
    for node in tuple(model.graph.all_nodes()):
        if node.op_type == "BitShift" and not node.domain:
            _shift(node)


def _shift(node: ir.Node) -> None:
    """A shift by the type's width or more gives 0; what IREE compiles shifts by the rest of a division by the width.

    before:  z = BitShift (x, y)
    after:   z = Where (Less (y, 8), BitShift (x, Min (y, 7)), 0)
    """
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
