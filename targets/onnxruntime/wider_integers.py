"""Operators on integers of types that ONNX Runtime has no kernel of, computed in a wider type.

before:  x:u16 → Pad → y:u16
after:   x:u16 → Cast → Pad:i32 → Cast → y:u16

Only where that is exact: what moves, compares or marks integers, and sums that begin again at the other end.
Measured: ONNX Runtime 1.31, by ``tests/targets/onnxruntime/test_wider_integers.py``.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from convertkit.onnx.casts import cast_node

_I8, _I16, _I32, _I64 = ir.DataType.INT8, ir.DataType.INT16, ir.DataType.INT32, ir.DataType.INT64
_U8, _U16, _U32, _U64 = ir.DataType.UINT8, ir.DataType.UINT16, ir.DataType.UINT32, ir.DataType.UINT64
Wider = Mapping[ir.DataType, ir.DataType]
_SHORT: Wider = {_I16: _I32, _U16: _I32}
_UNSIGNED: Wider = {_U32: _I64, _U64: _I64}
_LONG: Wider = {_U32: _I64}
_TYPES: Mapping[str, Wider] = {
    "ArgMax": {**_SHORT, **_LONG},
    "ArgMin": {**_SHORT, **_LONG},
    "BitShift": {_U16: _U32},
    "Clip": _SHORT,
    "CumSum": _UNSIGNED,
    "Max": _SHORT,
    "Min": _SHORT,
    "NonZero": {_I8: _I32, **_SHORT, **_UNSIGNED},
    "Pad": _SHORT,
    "ReduceMax": _LONG,
    "ReduceMin": _LONG,
    "ReduceSum": _UNSIGNED,
    "Relu": {_I16: _I32},
    "TopK": {_U16: _I32, **_LONG},
    "Trilu": {_I8: _I32, _U8: _I32, **_SHORT, **_UNSIGNED},
    "Unique": {_U8: _I64, _I16: _I64, _U16: _I64, _I32: _I64, **_LONG},
    "Where": {**_SHORT, _U64: _I64},
}
"""By operator, the types without a kernel and the type that holds them: a uint64 only has to keep its bits."""
_DATA: Mapping[str, int] = {"Where": 1}
"""Which operand tells the type, where it is not the first."""


def widen_integers(model: ir.Model) -> None:
    """Put Casts around them, in place."""
    for node in [node for node in model.graph.all_nodes() if node.op_type in _TYPES and not node.domain]:
        value = node.inputs[_DATA.get(node.op_type, 0)]
        kind = None if value is None else value.dtype
        wide = None if kind is None else _TYPES[node.op_type].get(kind)
        if kind is not None and wide is not None:
            _cast_around(node, kind, wide)


def _cast_around(node: ir.Node, kind: ir.DataType, wide: ir.DataType) -> None:
    graph = node.graph
    assert graph is not None
    for place, value in enumerate(node.inputs):
        if value is not None and value.dtype == kind:
            cast = cast_node(value, wide, f"{node.name}/{place}/wide")
            graph.insert_before(node, cast)
            node.replace_input_with(place, cast.outputs[0])
    for value in [value for value in node.outputs if value.dtype == kind]:
        name = value.name
        cast = cast_node(value, kind, f"{name}/narrow")
        graph.insert_after(node, cast)
        ir.convenience.replace_all_uses_with(value, cast.outputs[0], replace_graph_outputs=True)
        cast.replace_input_with(0, value)
        value.type, value.name, cast.outputs[0].name = ir.TensorType(wide), f"{name}/wide", name
