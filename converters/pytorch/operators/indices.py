"""Indices that torch's exporter leaves as int32 for operators that take int64 alone."""

from __future__ import annotations

import onnx_ir as ir

_TAKERS = frozenset({"ScatterND", "GatherND"})
_SAME_TYPE = frozenset(
    {"Unsqueeze", "Concat", "Expand", "Reshape", "Transpose", "Squeeze", "Identity", "Slice", "Gather"}
)
"""Operators whose result has the type of their first operand."""


def widen_indices(model: ir.Model) -> None:
    """Cast them, as where torch takes ``unfold_backward`` (of the inverse Fourier transform) apart."""
    for node in list(model.graph.all_nodes()):
        if node.op_type not in _TAKERS or node.domain != "" or _dtype(node.inputs[1]) != ir.DataType.INT32:
            continue
        index = node.inputs[1]
        cast = ir.node("Cast", [index], {"to": int(ir.DataType.INT64)}, name=f"{node.name}_indices")
        cast.outputs[0].type = ir.TensorType(ir.DataType.INT64)
        if index is not None:
            cast.outputs[0].shape = index.shape
        owner = node.graph
        assert owner is not None, "the nodes come from a graph"
        owner.insert_before(node, cast)
        node.replace_input_with(1, cast.outputs[0])


def _dtype(value: ir.Value | None) -> ir.DataType | None:
    """The value's type, found from what it is computed from where it is not recorded."""
    while value is not None and value.dtype is None:
        maker = value.producer()
        if maker is None:
            return None
        if maker.op_type == "Cast":
            return ir.DataType(maker.attributes["to"].as_int())
        if maker.op_type not in _SAME_TYPE:
            return None
        value = maker.inputs[0]
    return None if value is None else value.dtype
