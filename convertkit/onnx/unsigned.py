"""Signed activations → unsigned ones, which compute the same and which x86 multiplies.

On x86, ONNX Runtime itself makes activations unsigned before it fuses ``DequantizeLinear → operator →
QuantizeLinear``, but not those of a QuantizeLinear that has several readers: such an operator stays float, as do the
convolutions before and behind every residual sum.  Its Arm kernels take either.
Source: ONNX Runtime, ``QDQS8ToU8Transformer`` and ``QDQIsInt8Allowed``.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import add_constant

_SHIFT = 128
_ZERO_POINT = 2


def make_unsigned(model: ir.Model) -> int:
    """Shift every int8 activation that is only read by DequantizeLinear by 128, in place; how many there were.

    Numbers stay what they were, up to the ties of ONNX Runtime's fused kernels.  Integer inputs and outputs of the
    model keep their dtype, as do weights.
    """
    moved: dict[ir.Value, ir.Value] = {}
    shifted = 0
    for node in model.graph:
        if node.op_type != "QuantizeLinear" or node.outputs[0].is_graph_output():
            continue
        readers = [reader for reader, _ in node.outputs[0].uses()]
        pair = (node, *readers)
        points = [point for each in pair if (point := _signed_point(each)) is not None]
        if len(points) < len(pair) or any(each.op_type != "DequantizeLinear" for each in readers):
            continue
        for each, point in zip(pair, points, strict=True):
            if point not in moved:
                moved[point] = _unsigned(model.graph, point)
            each.replace_input_with(_ZERO_POINT, moved[point])
        node.outputs[0].dtype = ir.DataType.UINT8
        shifted += 1
    for point in moved:
        if point.name is not None and not point.uses():
            del model.graph.initializers[point.name]
    return shifted


def _signed_point(node: ir.Node) -> ir.Value | None:
    """The node's int8 zero point, if it is an initializer."""
    point = node.inputs[_ZERO_POINT] if len(node.inputs) > _ZERO_POINT else None
    if point is None or not point.is_initializer() or point.const_value is None:
        return None
    return point if point.const_value.dtype == ir.DataType.INT8 else None


def _unsigned(graph: ir.Graph, point: ir.Value) -> ir.Value:
    """``point`` + 128 as a new initializer."""
    assert point.const_value is not None
    array = (point.const_value.numpy().astype(np.int16) + _SHIFT).astype(np.uint8)
    return add_constant(graph, f"{point.name}_unsigned", array, separator="")
