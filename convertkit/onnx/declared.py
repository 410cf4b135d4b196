"""Axes and sizes that a file declares of its outputs, where operators say otherwise: ONNX Runtime only warns of that.

Of some operators sizes stay as declared: ONNX's rules tell wrong ones, or what they tell follows from other outputs.
"""

from __future__ import annotations

import onnx
import onnx_ir as ir
from onnx import defs, shape_inference

from convertkit.onnx.pool_pads import POOLS

_AS_DECLARED = frozenset({"STFT", "DFT", "If", "Loop", "Scan", "SequenceMap"})
"""An STFT of one side has other frequencies than ONNX's rules say; what has graphs inside has what those declare."""
_SMALL = 64
"""Elements of a constant that may tell sizes, as those of a Reshape."""


def correct_declared(model: ir.Model) -> None:
    """Give each output of which its operator makes other axes, or other sizes, the operator's shape, in place."""
    opset = model.graph.opset_imports.get("", 0)
    for value in model.graph.outputs:
        node = value.producer()
        if node is None or node.domain or value.shape is None:
            continue
        found = inferred(node, value.index() or 0, opset)
        if found is not None and (len(value.shape) != len(found) or _is_other(value.shape, found, node)):
            value.shape = found


def _is_other(declared: ir.Shape, found: ir.Shape, node: ir.Node) -> bool:
    """Whether two sizes that are numbers differ."""
    pairs = zip(declared, found, strict=True)
    differ = any(isinstance(size, int) and isinstance(told, int) and size != told for size, told in pairs)
    rounds_up = node.op_type in POOLS and node.attributes.get_int("ceil_mode", 0) == 1  # ONNX's rules count too many
    return differ and node.op_type not in _AS_DECLARED and not rounds_up


def inferred(node: ir.Node, place: int, opset: int) -> ir.Shape | None:
    """The shape that the operator gives by ONNX's rules; None where these do not tell."""
    taken = [value for value in node.inputs if value is not None]
    if any(value.shape is None or value.type is None for value in taken):
        return None
    types = {str(value.name): ir.to_proto(value).type for value in taken}
    constants = ((str(value.name), value.const_value) for value in taken)
    data = {name: ir.to_proto(each) for name, each in constants if each is not None and each.size <= _SMALL}
    try:
        schema = defs.get_schema(node.op_type, opset, "")
        found = shape_inference.infer_node_outputs(
            schema, ir.to_proto(node), types, data, opset_imports=[onnx.helper.make_opsetid("", opset)]
        )
    except (defs.SchemaError, shape_inference.InferenceError, onnx.checker.ValidationError):
        return None
    told = found.get(str(node.outputs[place].name))
    if told is None or not told.tensor_type.HasField("shape"):
        return None
    return ir.serde.deserialize_type_proto_for_shape(told)
