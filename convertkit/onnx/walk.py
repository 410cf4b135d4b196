"""A graph computed node by node with a table of functions: the same walk for every framework.

A table has a function for each operator.  It gets the inputs in order (None where one is left out) and the attributes
as keywords, and returns the outputs: its signature says what it knows, and a node that asks for more is refused.  To
write out a default that ONNX's schema has, as exporters do, is not to ask for more.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import onnx
import onnx_ir as ir

from convertkit.errors import Unsupported

Table = Mapping[str, Callable[..., Any]]


def check(graph: ir.Graph, table: Table, what: str) -> None:
    """``Unsupported`` where a node of the graph is not what the table's functions take; ``what`` needs the walk."""
    for node in graph:
        function = None if node.domain else table.get(node.op_type)
        subject = f"{node.name or node.outputs[0].name} ({node.op_type})"
        if function is None:
            raise Unsupported(f"{what} knows no such operator", subject=subject)
        try:
            inspect.signature(function).bind(*node.inputs, **_asked(node, function))
        except TypeError as error:
            raise Unsupported(f"{what} does not know this form of it: {error}", subject=subject) from error


def attributes(node: ir.Node) -> dict[str, Any]:
    """The attributes of a node as Python values: text as ``str``, lists as tuples."""
    found = {}
    for name, attribute in node.attributes.items():
        value = attribute.value
        found[name] = tuple(value) if isinstance(value, list | tuple) else value
    return found


def _asked(node: ir.Node, function: Callable[..., Any]) -> dict[str, Any]:
    """The attributes that the function takes, and all others that are not what the schema has without them."""
    known, defaults = _parameters(function), _defaults(node.op_type)
    return {
        name: value
        for name, value in attributes(node).items()
        if name in known or name not in defaults or defaults[name] != value
    }


@cache
def _parameters(function: Callable[..., Any]) -> frozenset[str]:
    return frozenset(inspect.signature(function).parameters)


@cache
def _defaults(op_type: str) -> dict[str, Any]:
    """What ONNX's newest schema has for attributes that are left out."""
    if not onnx.defs.has(op_type):
        return {}
    found = {}
    for name, attribute in onnx.defs.get_schema(op_type).attributes.items():
        if attribute.default_value.type != onnx.AttributeProto.UNDEFINED:
            value = onnx.helper.get_attribute_value(attribute.default_value)
            found[name] = value.decode() if isinstance(value, bytes) else value
    return found


def walk(graph: ir.Graph, table: Table, values: dict[ir.Value, Any]) -> dict[ir.Value, Any]:
    """Compute every node; ``values`` holds inputs and constants, and all others afterwards."""
    for node in graph:
        if all(output in values for output in node.outputs):
            continue
        given = [None if value is None else values[value] for value in node.inputs]
        function = table[node.op_type]
        made = function(*given, **_asked(node, function))
        outputs = made if isinstance(made, tuple) else (made,)
        values.update(zip(node.outputs, outputs, strict=False))
    return values
