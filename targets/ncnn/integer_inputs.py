"""Inputs of integers that are only made real, as the mask of a transformer is.

before:  mask:i64 → Unsqueeze → Cast to float32 → Sub …
after:   mask:f32 → Unsqueeze → Sub …

A Cast to bool stays, and asks the same of the real numbers.

The runner gives such an input in float32, which rounds as the Cast does.
"""

from __future__ import annotations

import onnx_ir as ir

_MOVES = frozenset({"Expand", "Flatten", "Identity", "Reshape", "Slice", "Squeeze", "Tile", "Transpose", "Unsqueeze"})
_REAL = ir.TensorType(ir.DataType.FLOAT)


def take_as_real(model: ir.Model) -> int:
    """In place; how many inputs became float32."""
    taken = 0
    for value in model.graph.inputs:
        if value.dtype is None or value.dtype.is_floating_point() or not value.uses():
            continue
        found = _made_real(value)
        if found is not None:
            _take(value, *found)
            taken += 1
    return taken


def _made_real(value: ir.Value) -> tuple[list[ir.Value], list[ir.Node]] | None:
    """What holds the integers, and the casts that make them float32; None where anything else reads them."""
    held, casts = [value], []
    for each in held:
        if each.is_graph_output():
            return None
        for node, place in each.uses():
            if node.op_type == "Cast" and node.outputs[0].dtype == ir.DataType.FLOAT:
                casts.append(node)
            elif node.op_type == "Cast" and node.outputs[0].dtype == ir.DataType.BOOL:
                continue
            elif node.op_type in _MOVES and not node.domain and place == 0:
                held.append(node.outputs[0])
            else:
                return None
    return held, casts


def _take(value: ir.Value, held: list[ir.Value], casts: list[ir.Node]) -> None:
    for each in held:
        each.type = _REAL
    for node in casts:
        node.op_type = "Identity"
        node.attributes.clear()
