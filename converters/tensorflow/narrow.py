"""Integers of 8 and 16 bits in operators that ONNX, or ONNX Runtime, does not take them in: as int32, in place.

Sums and products keep their lower digits, so that what is cast back wraps around as in TensorFlow.
"""

from __future__ import annotations

import onnx_ir as ir

from convertkit.onnx.edit import inserted

_NARROW = frozenset({ir.DataType.INT8, ir.DataType.INT16, ir.DataType.UINT8, ir.DataType.UINT16})
_WIDENED = frozenset({"CumSum", "NonZero", "ReduceProd", "ReduceSum", "Relu"})
"""What computes in the type of its first operand."""


def widen_narrow_integers(model: ir.Model) -> None:
    """Compute each such operator in int32."""
    wide = ir.DataType.INT32
    for node in [each for each in model.graph.all_nodes() if each.op_type in _WIDENED and not each.domain]:
        source, result = node.inputs[0], node.outputs[0]
        if source is None or source.dtype not in _NARROW:
            continue
        cast = inserted(node, "Cast", [source], source, {"to": int(wide)})
        entered = cast.outputs[0]
        cast.name, entered.name, entered.type = f"{node.name}/widen", f"{result.name}/widened", ir.TensorType(wide)
        node.replace_input_with(0, entered)
        if node.op_type != "NonZero":
            _left(node, result, source.dtype)


def _left(node: ir.Node, result: ir.Value, dtype: ir.DataType) -> None:
    """Cast a result back, under its name."""
    name, result.type = result.name, ir.TensorType(ir.DataType.INT32)
    result.name = f"{name}/wide"
    cast = ir.node("Cast", [result], {"to": int(dtype)}, name=f"{node.name}/narrow")
    back = cast.outputs[0]
    back.name, back.shape, back.type = name, result.shape, ir.TensorType(dtype)
    assert node.graph is not None
    node.graph.insert_after(node, cast)
    result.replace_all_uses_with(back, replace_graph_outputs=True)
    cast.replace_input_with(0, result)
