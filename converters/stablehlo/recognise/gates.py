"""Gates of recurrent cells: sums of products with constant weights, in any association."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.edit import array_of, sizes

_ROWS = frozenset({"Gather", "Reshape", "Squeeze"})


@dataclass(slots=True)
class Linear:
    """``x · weights + h · recurrent + bias``, each of ``size`` columns; absent terms are zero."""

    x: ir.Value | None
    weights: Array | None
    recurrent: Array | None
    bias: Array
    selects: bool = False
    """Whether ``weights`` only choose columns of a row that stands outside of the loop, in full."""


def linear(value: ir.Value, h: ir.Value) -> Linear | None:
    """A gate before its activation, None where it is not such a sum."""
    shape = sizes(value)
    if not shape or shape[-1] is None:
        return None
    gate = Linear(None, None, None, np.zeros(shape[-1], np.float32))
    return gate if _add_terms(gate, value, h, slice(0, shape[-1])) else None


def _add_terms(gate: Linear, value: ir.Value | None, h: ir.Value, columns: slice) -> bool:
    array = _constant(value)
    if array is not None:
        fits = array.size == 1 or (array.size == array.shape[-1] and array.size >= columns.stop)
        if not fits or array.dtype != np.float32:
            return False
        gate.bias = gate.bias + _columns(array, columns)
        return True
    node = None if value is None else value.producer()
    if value is None or node is None or node.domain != "":
        return False
    if node.op_type == "Add":
        return all(_add_terms(gate, each, h, columns) for each in node.inputs)
    if node.op_type == "Slice":
        inner = _cut(node, columns)
        return inner is not None and _add_terms(gate, node.inputs[0], h, inner)
    if node.op_type == "Split":
        inner = _part(node, value, columns)
        return inner is not None and _add_terms(gate, node.inputs[0], h, inner)
    if node.op_type == "MatMul":
        return _add_product(gate, node.inputs[0], array_of(node.inputs[1]), h, columns)
    if node.op_type in _ROWS and gate.weights is None:
        width = (sizes(value) or (None,))[-1]
        gate.selects = width is not None
        return width is not None and _add_product(gate, value, np.eye(width, dtype=np.float32), h, columns)
    if node.op_type == "Gemm" and not any(name in node.attributes for name in ("alpha", "beta", "transA", "transB")):
        product = _add_product(gate, node.inputs[0], array_of(node.inputs[1]), h, columns)
        return product and (len(node.inputs) < 3 or _add_terms(gate, node.inputs[2], h, columns))
    return False


def _constant(value: ir.Value | None) -> Array | None:
    """A constant's elements, also of a part of one that has not been folded yet."""
    node = None if value is None else value.producer()
    if value is None or node is None or node.op_type not in ("Split", "Squeeze") or node.domain != "":
        return array_of(value)
    whole, shape = _constant(node.inputs[0]), sizes(value)
    if whole is None or shape is None or None in shape:
        return None
    if node.op_type == "Squeeze":
        return whole.reshape([size for size in shape if size is not None])
    first = _first(node, value, node.attributes.get_int("axis", 0))
    if first is None:
        return None
    axis = node.attributes.get_int("axis", 0) % len(shape)
    part: Array = np.take(whole, range(first, first + (shape[axis] or 0)), axis)
    return part


def _add_product(gate: Linear, x: ir.Value | None, weights: Array | None, h: ir.Value, columns: slice) -> bool:
    if x is None or weights is None or weights.ndim != 2 or weights.dtype != np.float32:
        return False
    if x is h and gate.recurrent is None:
        gate.recurrent = weights[:, columns]
        return True
    if x is not h and gate.weights is None:
        gate.x, gate.weights = x, weights[:, columns]
        return True
    return False


def _columns(bias: Array, columns: slice) -> Array:
    row = bias.reshape(-1)
    return row if row.size == 1 else row[columns]


def _cut(node: ir.Node, columns: slice) -> slice | None:
    """The columns of a slice's input that are ``columns`` of its output."""
    given = [array_of(each) for each in node.inputs[1:]]
    bounds = [each for each in given if each is not None]
    shape = sizes(node.inputs[0])
    if shape is None or len(given) < 3 or len(bounds) < len(given):
        return None
    if any(each.size != bounds[0].size for each in bounds):
        return None
    last = len(shape) - 1
    cuts = zip(*(each.reshape(-1).tolist() for each in bounds), strict=True)
    starts = {}
    for start, end, axis, *step in cuts:
        starts[axis % len(shape)] = start
        is_whole = start == 0 and end >= np.iinfo(np.int32).max
        if step not in ([], [1]) or start < 0 or not (is_whole or axis % len(shape) == last):
            return None
    first = starts.get(last, 0)
    return slice(first + columns.start, first + columns.stop)


def _part(node: ir.Node, value: ir.Value, columns: slice) -> slice | None:
    """The columns of a split's input that are ``columns`` of one of its outputs."""
    rank, axis = len(sizes(value) or ()), node.attributes.get_int("axis", 0)
    first = _first(node, value, axis)
    if first is None or axis % rank != rank - 1:
        return None
    return slice(first + columns.start, first + columns.stop)


def _first(node: ir.Node, value: ir.Value, axis: int) -> int | None:
    """Where an output of a split begins in its input."""
    first = 0
    for each in node.outputs:
        if each is value:
            return first
        shape = sizes(each)
        width = None if shape is None else shape[axis]
        if width is None:
            return None
        first += width
    return None
