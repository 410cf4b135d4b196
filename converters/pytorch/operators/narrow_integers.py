"""Integers of 8 and 16 bits in operators whose ONNX forms, or ONNX Runtime's kernels, take wider ones: as int32.

Sums and products keep their lower digits, so that what is cast back wraps around as in torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import onnx_ir as ir

_NARROW = frozenset({ir.DataType.INT8, ir.DataType.INT16, ir.DataType.UINT8, ir.DataType.UINT16})
_WIDER: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {
        **dict.fromkeys(("Neg", "ReduceMax", "ReduceMin", "ReduceSum", "ReduceProd", "ArgMax", "ArgMin"), (0,)),
        **dict.fromkeys(("Pow", "MatMul"), (0, 1)),
        **dict.fromkeys(("Gemm", "Einsum"), (0, 1, 2)),
        "Where": (1, 2),
    }
)
"""Operators, and which operands are of the type that they compute in."""


def widen_narrow_integers(graph: Any) -> None:
    """Compute every such operator in int32, in place; the exporter does not tell the types of all constants."""
    for node in list(graph.all_nodes()):
        if node.domain or node.op_type not in _WIDER:
            continue
        places = [
            place for place in _WIDER[node.op_type] if place < len(node.inputs) and node.inputs[place] is not None
        ]
        if not any(node.inputs[place].dtype in _NARROW for place in places):
            continue
        for place in places:
            value = node.inputs[place]
            cast = _cast(value, ir.DataType.INT32, f"{value.name}_wide_{node.name}_{place}")
            node.graph.insert_before(node, cast)
            node.replace_input_with(place, cast.outputs[0])
        for value in node.outputs:
            if value.dtype in _NARROW:
                _narrow(node, value)


def _narrow(node: Any, value: Any) -> None:
    """Cast a result back, under its name."""
    name, dtype = value.name, value.dtype
    value.name, value.type = f"{name}_wide", ir.TensorType(ir.DataType.INT32)
    cast = _cast(value, dtype, name)
    node.graph.insert_after(node, cast)
    ir.convenience.replace_all_uses_with(value, cast.outputs[0], replace_graph_outputs=True)
    cast.replace_input_with(0, value)


def _cast(value: Any, to: ir.DataType, name: str) -> ir.Node:
    node = ir.node("Cast", [value], {"to": int(to)}, name=f"{name}_cast")
    result = node.outputs[0]
    result.name, result.shape, result.type = name, value.shape, ir.TensorType(to)
    return node
