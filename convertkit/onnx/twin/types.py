"""Which element type the model gives to each result of a node, where the twin computed it in float64."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.twin.call import Call
from convertkit.onnx.twin.values import UNIT, Tensor, Value

_NAMED_BY = ("dtype", "output_dtype", "output_datatype", "to")
_VARIADIC = onnx.defs.OpSchema.FormalParameterOption.Variadic


def result_type(call: Call, array: Array, place: int) -> ir.DataType:
    """Element type of the result at ``place``: an operand's, an attribute's, or the schema's own."""
    return _float_type(call, schema_of(call), place) if array.dtype == np.float64 else _plain(array)


def schema_of(call: Call) -> onnx.defs.OpSchema | None:
    """The schema of the node's operator at its opset, None for an operator that ONNX does not know."""
    node = call.node
    try:
        return onnx.defs.get_schema(node.op_type, max_inclusive_version=call.opset, domain=node.domain)
    except onnx.defs.SchemaError:
        return None


def _plain(array: Array) -> ir.DataType:
    return ir.DataType.STRING if array.dtype.kind in "OUS" else ir.DataType.from_numpy(array.dtype)


def _float_type(call: Call, schema: onnx.defs.OpSchema | None, place: int) -> ir.DataType:
    if schema is None:
        return call.dtype
    formal = schema.outputs[min(place, len(schema.outputs) - 1)]
    for index, value in enumerate(call.inputs):
        operand = schema.inputs[min(index, len(schema.inputs) - 1)]
        dtype = _dtype(value)
        if operand.type_str == formal.type_str and dtype in UNIT:
            return dtype
    for name in _NAMED_BY:
        if name in call.node.attributes and ir.DataType(call.whole(name)) in UNIT:
            return ir.DataType(call.whole(name))
    fixed = {"tensor(double)": ir.DataType.DOUBLE, "tensor(float)": ir.DataType.FLOAT}
    return fixed.get(formal.type_str, call.dtype)


def _dtype(value: Value) -> ir.DataType:
    first = value[0] if isinstance(value, tuple) and value else value
    return first.dtype if isinstance(first, Tensor) else ir.DataType.UNDEFINED
