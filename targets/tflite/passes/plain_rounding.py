"""Values rounded to integers that no kernel knows, and back at once: the rounding alone, in floats.

before:  x:f32 → QuantizeLinear → i16 → DequantizeLinear → y:f32, with one scale and a zero point that is not 0
after:   x:f32 → Div → Round → Clip → Mul → y:f32

Whole numbers of 16 bits and their differences are exact in float32.  Leaves the integers where something else reads
them, and scales for each channel.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import array_of, bypass
from convertkit.targets.forms.edits import can_drop, drop_if_unused, new_constant, typed
from convertkit.targets.forms.source import set_source
from convertkit.targets.tflite.passes.part import Part

_KINDS = frozenset({ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT16, ir.DataType.UINT16})


def round_in_floats(part: Part) -> None:
    """Rewrite every such pair that the integer kernels have left, in place."""
    rounded: dict[ir.Node, ir.Value] = {}
    for node in list(part.graph):
        maker = node.inputs[0].producer() if node.op_type == "DequantizeLinear" and node.inputs[0] is not None else None
        if maker is None or not _is_pair(maker, node):
            continue
        if maker not in rounded:
            rounded[maker] = _rounded(part.graph, maker)
        if can_drop(node, rounded[maker]):
            bypass(node, rounded[maker])
            drop_if_unused(maker)


def _is_pair(first: ir.Node, second: ir.Node) -> bool:
    if (first.domain, first.op_type, second.domain) != ("", "QuantizeLinear", ""):
        return False
    result, source = first.outputs[0], first.inputs[0]
    if result.dtype not in _KINDS or source is None or source.dtype != ir.DataType.FLOAT or first.graph is None:
        return False
    if second.outputs[0].dtype not in (None, ir.DataType.FLOAT) or first.graph is not second.graph:
        return False
    return _numbers(first) is not None and _numbers(first) == _numbers(second)


def _numbers(node: ir.Node) -> tuple[float, int] | None:
    """Scale and zero point, None where there are several or they are computed."""
    scale = array_of(node.inputs[1])
    given = node.inputs[2] if len(node.inputs) > 2 else None
    point = array_of(given)
    if scale is None or scale.size != 1 or scale.dtype != np.float32 or (given is not None and point is None):
        return None
    return float(scale.reshape(())), 0 if point is None else int(point.reshape(-1)[0])


def _rounded(graph: ir.Graph, node: ir.Node) -> ir.Value:
    numbers, result, x = _numbers(node), node.outputs[0], node.inputs[0]
    assert numbers is not None
    assert x is not None
    assert result.dtype is not None
    ends = np.iinfo(result.dtype.numpy())
    scale, low, high = (
        new_constant(graph, f"{node.name}/{name}", np.array(number, np.float32))
        for name, number in (("scale", numbers[0]), ("low", ends.min - numbers[1]), ("high", ends.max - numbers[1]))
    )
    value = x
    for op, operands in (("Div", (scale,)), ("Round", ()), ("Clip", (low, high)), ("Mul", (scale,))):
        made = ir.node(op, [value, *operands], name=f"{node.name}/{op}")
        set_source(made, node)
        value = typed(made.outputs[0], x.shape, ir.DataType.FLOAT)
        value.name = f"{result.name}/{op}"
        graph.insert_before(node, made)
    return value
