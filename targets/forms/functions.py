"""Replace operators that have no handler by the function body that ONNX defines for them."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import onnx_ir as ir
import onnx_ir.passes.common as common

from convertkit.onnx.canonical import simplify
from convertkit.onnx.function_bodies import body_of, defaults, type_of
from convertkit.targets.forms.decompositions import own_body
from convertkit.targets.forms.source import set_source

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
        _fill_defaults(node, model.graph.opset_imports[""])
        node.domain, node.op_type, node.version = _DOMAIN, body.name, None
    return functions


def _body(node: ir.Node, opset: int) -> onnx.FunctionProto | None:
    """Our own body, or ONNX's, made for this node's types where that matters."""
    if (own := own_body(node)) is not None:
        return own
    _narrow_softmax(node)
    proto = ir.to_proto(node)
    assert isinstance(proto, onnx.NodeProto)
    return body_of(proto, [type_of(value) for value in node.inputs], opset)


def _narrow_softmax(node: ir.Node) -> None:
    """Let a Softmax of Attention that is asked for in float64 be float32 where that is what it reads and becomes.

    The compilers have no float64; what is rounded to float32 behind it differs in the last places.
    """
    if node.op_type != "Attention":
        return
    asked, query = node.attributes.get("softmax_precision"), node.inputs[0]
    if asked is None or query is None:
        return
    if asked.as_int() == ir.DataType.DOUBLE and query.dtype in (ir.DataType.FLOAT, ir.DataType.FLOAT16):
        node.attributes.add(ir.AttrInt64("softmax_precision", ir.DataType.FLOAT.value))


def _fill_defaults(node: ir.Node, opset: int) -> None:
    """State the attributes that the node leaves to their defaults: the body refers to them."""
    for name, value in defaults(node.op_type, opset).items():
        if name not in node.attributes:
            node.attributes.add(ir.from_proto(value))
