"""Integers of 8 and 16 bits in operators that ONNX, or ONNX Runtime, does not take them in: as int32, in place.

Sums and products keep their lower digits, so that what is cast back wraps around as in TensorFlow.
"""

from __future__ import annotations

import onnx_ir as ir

from convertkit.onnx.edit import inserted

_NARROW = frozenset({ir.DataType.INT8, ir.DataType.INT16, ir.DataType.UINT8, ir.DataType.UINT16})
_WIDENED = frozenset({"CumSum", "ReduceProd", "ReduceSum", "Relu"})
"""What computes in the type of its first operand."""
_LOOKED_FOR = frozenset(
    {ir.DataType.BOOL, ir.DataType.FLOAT, ir.DataType.INT32, ir.DataType.INT64, ir.DataType.UINT8, None}
)
"""Where ONNX Runtime's NonZero looks for places."""


def widen_narrow_integers(model: ir.Model) -> None:
    """Compute each such operator in int32; look for the places of other types in booleans, which are exact."""
    for node in [each for each in model.graph.all_nodes() if not each.domain]:
        source = node.inputs[0] if node.inputs else None
        if source is None:
            continue
        if node.op_type == "NonZero" and source.dtype not in _LOOKED_FOR:
            _entered(node, source, ir.DataType.BOOL)
        elif node.op_type in _WIDENED and source.dtype in _NARROW:
            result, dtype = node.outputs[0], source.dtype
            _entered(node, source, ir.DataType.INT32)
            _left(node, result, dtype)


def _entered(node: ir.Node, source: ir.Value, dtype: ir.DataType) -> None:
    """Cast the first operand."""
    cast = inserted(node, "Cast", [source], source, {"to": int(dtype)})
    entered = cast.outputs[0]
    cast.name, entered.name, entered.type = (
        f"{node.name}/widen",
        f"{node.outputs[0].name}/widened",
        ir.TensorType(dtype),
    )
    node.replace_input_with(0, entered)


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
