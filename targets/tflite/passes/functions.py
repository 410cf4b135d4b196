"""Replace operators that have no handler by the function body that ONNX defines for them."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import onnx_ir as ir
import onnx_ir.passes.common as common
from onnx import defs

from convertkit.onnx.canonical import simplify
from convertkit.targets.tflite.marks import set_source
from convertkit.targets.tflite.passes.decompositions import own_body

_DOMAIN = "convertkit.expanded"
_MAX_DEPTH = 8


def expand_functions(model: ir.Model, handled: Callable[[ir.Node], bool]) -> bool:
    """Expand nodes for which ``handled`` is false and whose schema has a body, until none is left; whether any was.

    before:  y = Unhandled(x)
    after:   the nodes of the body, with constants folded

    Leaves operators without a body alone: the lowering refuses them.
    """
    for depth in range(_MAX_DEPTH):
        functions = _marked(model, handled)
        if not functions:
            return depth > 0
        for function in functions:
            model.functions[function.identifier()] = function
        common.InlinePass()(model)
        model.graph.opset_imports.pop(_DOMAIN, None)
        simplify(model)
    return True


def _marked(model: ir.Model, handled: Callable[[ir.Node], bool]) -> list[ir.Function]:
    """Turn each node to expand into a call of a function of its own, and return these functions."""
    functions: list[ir.Function] = []
    for node in list(model.graph.all_nodes()):
        if node.domain != "" or handled(node):
            continue
        body = _body(node, model.graph.opset_imports[""])
        if body is None:
            continue
        body.domain, body.name = _DOMAIN, f"{node.op_type}_{len(functions)}"
        function = ir.from_proto(body)
        function.opset_imports[""] = model.graph.opset_imports[""]
        for count, inner in enumerate(function):
            inner.name = f"{node.name}/{inner.op_type}_{count}"
            set_source(inner, node)
        functions.append(function)
        _fill_defaults(node, defs.get_schema(node.op_type, model.graph.opset_imports[""]))
        node.domain, node.op_type, node.version = _DOMAIN, body.name, None
    return functions


def _body(node: ir.Node, opset: int) -> onnx.FunctionProto | None:
    """Our own body, or the newest of ONNX's that the opset allows, made for this node's types where that matters."""
    if (own := own_body(node)) is not None:
        return own
    try:
        schema = defs.get_schema(node.op_type, opset)
    except defs.SchemaError:
        return None
    function = onnx.FunctionProto()
    if schema.has_context_dependent_function:
        version = _newest(schema.context_dependent_function_opset_versions, opset)
        types = [_type(value) for value in node.inputs]
        text = schema.get_context_dependent_function_with_opset_version(
            version, ir.to_proto(node).SerializeToString(), types
        )
    elif schema.has_function:
        text = schema.get_function_with_opset_version(_newest(schema.function_opset_versions, opset))
    else:
        return None
    if not text:
        return None
    function.ParseFromString(text)
    _complete_outputs(function, len(node.outputs))
    return function


def _complete_outputs(function: onnx.FunctionProto, wanted: int) -> None:
    """A body made for a node leaves out what the node does not ask for, yet declares it: stand-ins are never read."""
    del function.output[wanted:]
    made = {name for node in function.node for name in node.output}
    for name in function.output:
        if name not in made:
            function.node.append(onnx.helper.make_node("Identity", [function.input[0]], [name]))


def _fill_defaults(node: ir.Node, schema: defs.OpSchema) -> None:
    """State the attributes that the node leaves to their defaults: the body refers to them."""
    for name, spec in schema.attributes.items():
        if spec.default_value.type and name not in node.attributes:
            node.attributes.add(ir.from_proto(spec.default_value))


def _newest(versions: list[int], opset: int) -> int:
    return max(version for version in versions if version <= opset)


def _type(value: ir.Value | None) -> bytes:
    """The serialised type of an input; empty for one that is left out."""
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
