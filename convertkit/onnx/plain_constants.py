"""Numbers that an exporter brings to a neighbour's type and shape become constants.

torch's exporter writes ``Clip(x, CastLike(0.0, x), …)`` and a bias that a convolution lacks as ``Expand(CastLike(0.0,
x), Shape(weight))``: four of five nodes of a convolutional net.  The optimizer folds them as well, with an inference of
shapes and forty patterns for each; done before, it has a fifth of the nodes to look at.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnx_ir.passes.common as common

from convertkit.artifact import Array
from convertkit.onnx.edit import add_constant

_LARGEST_ENTRIES = 1 << 12
"""Of what is made; the optimizer has its own bound for more."""
_EXACT = frozenset({ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.INT64, ir.DataType.INT32})


def fold_plain_constants(model: ir.Model) -> None:
    """Fold CastLike, Shape and Expand of what is known, where the result is small and exact, in place."""
    known = dict[ir.Value, Array]()
    for node in list(model.graph):
        if node.domain or len(node.outputs) != 1 or node.outputs[0].is_graph_output():
            continue
        result = _computed(node, known)
        if result is not None:
            known[node.outputs[0]] = result
            become_constant(model, node.outputs[0], result)
    if known:
        common.RemoveUnusedNodesPass()(model)


def _computed(node: ir.Node, known: dict[ir.Value, Array]) -> Array | None:
    if node.op_type == "CastLike":
        return _cast(_constant(node.inputs[0], known), node.inputs[1])
    if node.op_type == "Shape":
        sizes, start, end = _shape(node.inputs[0]), node.attributes.get_int("start", 0), node.attributes.get("end")
        return None if sizes is None else sizes[start : None if end is None else end.as_int()]
    if node.op_type == "Expand":
        return _expanded(_constant(node.inputs[0], known), _constant(node.inputs[1], known))
    return None


def _constant(value: ir.Value | None, known: dict[ir.Value, Array]) -> Array | None:
    if value is None or value.is_graph_input():
        return None
    if value in known:
        return known[value]
    tensor = ir.convenience.get_const_tensor(value)
    if tensor is None or tensor.size > _LARGEST_ENTRIES or tensor.dtype not in _EXACT:
        return None
    return np.asarray(tensor.numpy())


def _cast(array: Array | None, like: ir.Value | None) -> Array | None:
    """The same numbers in the type of ``like``; None where the type is not known or does not hold them."""
    if array is None or like is None or like.dtype not in _EXACT:
        return None
    cast = array.astype(like.dtype.numpy())
    return cast if np.array_equal(cast.astype(array.dtype), array) else None


def _shape(value: ir.Value | None) -> Array | None:
    if value is None or value.shape is None:
        return None
    sizes = [size for size in tuple(value.shape) if isinstance(size, int)]
    return np.array(sizes, np.int64) if len(sizes) == len(value.shape) else None


def _expanded(array: Array | None, shape: Array | None) -> Array | None:
    if array is None or shape is None:
        return None
    target = np.broadcast_shapes(array.shape, tuple(int(size) for size in shape))
    return np.broadcast_to(array, target).copy() if np.prod(target) <= _LARGEST_ENTRIES else None


def become_constant(model: ir.Model, value: ir.Value, array: Array) -> None:
    """An initializer in place of a value that was computed, for all that read it."""
    value.replace_all_uses_with(add_constant(model.graph, f"{value.name}/constant", array, separator=""))
