"""The bodies by which ONNX defines operators through others.

Source: the operators' schemas, ``function_body``; some are made for a node's attributes and types.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx
import onnx_ir as ir
from onnx import defs


def body_of(node: onnx.NodeProto, types: Sequence[bytes], opset: int) -> onnx.FunctionProto | None:
    """The newest body of ``node``'s operator that ``opset`` allows, else its oldest; None where it has none.

    ``types`` are the operands' serialised ``TypeProto``, empty for one that is not given.  Outputs that the node does
    not ask for go, or come from stand-ins that nothing reads.
    """
    try:
        schema = defs.get_schema(node.op_type, opset, node.domain)
    except defs.SchemaError:
        return None
    if schema.has_context_dependent_function:
        version = _newest(schema.context_dependent_function_opset_versions, opset)
        write = schema.get_context_dependent_function_with_opset_version
        content = write(version, node.SerializeToString(), list(types))
    elif schema.has_function:
        content = schema.get_function_with_opset_version(_newest(schema.function_opset_versions, opset))
    else:
        return None
    if not content:
        return None
    function = onnx.FunctionProto()
    function.ParseFromString(content)
    _complete_outputs(function, len(node.output))
    return function


def _newest(versions: Sequence[int], opset: int) -> int:
    return max((version for version in versions if version <= opset), default=min(versions))


def _complete_outputs(function: onnx.FunctionProto, wanted: int) -> None:
    """A body made for a node leaves out what the node does not ask for, yet declares it."""
    del function.output[wanted:]
    made = {name for node in function.node for name in node.output}
    for name in function.output:
        if name not in made:
            function.node.append(onnx.helper.make_node("Identity", [function.input[0]], [name]))


def defaults(op_type: str, opset: int, domain: str = "") -> dict[str, onnx.AttributeProto]:
    """Attributes that have a default, by name: a body refers to them, stated or not."""
    schema = defs.get_schema(op_type, opset, domain)
    stated = {name: attribute.default_value for name, attribute in schema.attributes.items()}
    return {name: value for name, value in stated.items() if value.type != onnx.AttributeProto.UNDEFINED}


def type_of(value: ir.Value | None) -> bytes:
    """The serialised type of an operand; empty for one that is left out."""
    if value is None:
        return b""
    proto = onnx.TypeProto()
    if value.dtype is not None:
        proto.tensor_type.elem_type = int(value.dtype)
    if value.shape is not None:
        proto.tensor_type.shape.SetInParent()
        for size in value.shape:
            dim = proto.tensor_type.shape.dim.add()
            if isinstance(size, int):
                dim.dim_value = size
    return bytes(proto.SerializeToString())
