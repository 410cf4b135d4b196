"""Softmax of rows that were made of a tensor only to take its last axis."""

from __future__ import annotations

import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.edit import array_of, only_user, producer, replaced, sizes

_BY_ROWS = ("Softmax", "LogSoftmax", "Hardmax")


def recognise_rows(node: ir.Node) -> None:
    """A Softmax of opset 12 or older along the last axis, as ONNX's version converter writes it out.

    before:  Reshape(Softmax(Flatten(x, axis=rank - 1)), Shape(x))
    after:   Softmax(x, axis=-1)

    The converter does so where it does not know the rank of ``x``.  ``Reshape`` may stand for ``Flatten``, and sizes
    that are known for ``Shape(x)``.
    """
    rows = node.inputs[0].producer() if node.op_type == "Reshape" and not node.domain and node.inputs[0] else None
    if rows is None or rows.op_type not in _BY_ROWS or rows.domain or only_user(rows.outputs[0]) is not node:
        return
    flat = producer(rows.inputs[0], "Flatten") or producer(rows.inputs[0], "Reshape")
    x = None if flat is None else flat.inputs[0]
    if flat is None or x is None or rows.attributes.get_int("axis", -1) not in (-1, 1):
        return
    if _keeps_last_axis(flat, x) and _has_shape_of(node, x):
        replaced(node, rows.op_type, [x], {"axis": -1})


def _keeps_last_axis(flat: ir.Node, x: ir.Value) -> bool:
    """Whether the columns of the matrix are the last axis of ``x``."""
    known = sizes(x)
    if not known:
        return False
    if flat.op_type == "Flatten":
        return flat.attributes.get_int("axis", 1) in (-1, len(known) - 1)
    wanted = array_of(flat.inputs[1])
    return wanted is not None and wanted.size == 2 and int(wanted[1]) > 0 and int(wanted[1]) == known[-1]


def _has_shape_of(node: ir.Node, x: ir.Value) -> bool:
    """Whether a Reshape gives the shape of ``x``, of which it holds all elements."""
    shape = producer(node.inputs[1], "Shape")
    if shape is not None:
        return shape.inputs[0] is x and not ({"start", "end"} & shape.attributes.keys())
    wanted, known = array_of(node.inputs[1]), sizes(x)
    return wanted is not None and known is not None and _are(wanted, known)


def _are(wanted: Array, known: tuple[int | None, ...]) -> bool:
    """Whether sizes, of which one may be -1 for what is left, are those that are known."""
    pairs = list(zip(wanted.tolist(), known, strict=False))
    left = [size for size, _ in pairs if size == -1]
    return wanted.size == len(known) and len(left) <= 1 and all(size in (-1, found) and size for size, found in pairs)
