"""Weights that a file stores as integers for size alone, as reals: what computes with them is float so far.

before:  w: int8 → DequantizeLinear → Conv        (every activation is float)
after:   w: float32 → Conv, which gets integers of its own, the same ones where the scales are
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.edit import add_constant, dropped
from convertkit.quantization.graph.units import constant, is_constant

_INTEGERS = frozenset(
    getattr(ir.DataType, name) for name in ("INT4", "UINT4", "INT8", "UINT8", "INT16", "UINT16", "INT32")
)


def weights_as_reals(model: ir.Model) -> None:
    """Replace each DequantizeLinear of constant integers to float32 in the main graph, in place."""
    for node in list(model.graph):
        given = [value for value in node.inputs if value is not None]
        if node.op_type != "DequantizeLinear" or node.domain or not all(map(is_constant, given)):
            continue
        if given[0].dtype not in _INTEGERS:
            continue
        if node.outputs[0].dtype == ir.DataType.FLOAT and not node.outputs[0].is_graph_output():
            dropped(node, add_constant(model.graph, f"{node.outputs[0].name}_real", _real(node)))


def _real(node: ir.Node) -> Array:
    """``(x - zero point) * scale``, as ONNX Runtime computes it."""
    x, scale, *point = (constant(value) for value in node.inputs if value is not None)
    axis = node.attributes.get_int("axis", 1)
    block = node.attributes.get_int("block_size", 0)
    whole = x.astype(np.int64)
    if point:
        whole = whole - _spread(point[0].astype(np.int64), x, axis, block)
    real: Array = whole.astype(np.float32) * _spread(scale.astype(np.float32), x, axis, block)
    return real


def _spread(values: Array, x: Array, axis: int, block: int) -> Array:
    """Scales or zero points as they meet ``x``: one for all, one for each place of an axis, or for each block."""
    if values.size == 1:
        return values.reshape(())
    axis %= x.ndim
    if values.ndim == 1:
        return values.reshape([-1 if place == axis else 1 for place in range(x.ndim)])
    return np.repeat(values, block, axis).take(np.arange(x.shape[axis]), axis)
