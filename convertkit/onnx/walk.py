"""A graph computed node by node with a table of functions: the same walk for every framework.

A table has a function for each operator.  It gets the inputs in order (None where one is left out) and the attributes
as keywords, and returns the outputs: its signature says what it knows, and a node that asks for more is refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

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
            inspect.signature(function).bind(*node.inputs, **attributes(node))
        except TypeError as error:
            raise Unsupported(f"{what} does not know this form of it: {error}", subject=subject) from error


def attributes(node: ir.Node) -> dict[str, Any]:
    """The attributes of a node as Python values: text as ``str``, lists as tuples."""
    found = {}
    for name, attribute in node.attributes.items():
        value = attribute.value
        found[name] = tuple(value) if isinstance(value, list | tuple) else value
    return found


def walk(graph: ir.Graph, table: Table, values: dict[ir.Value, Any]) -> dict[ir.Value, Any]:
    """Compute every node; ``values`` holds inputs and constants, and all others afterwards."""
    for node in graph:
        if all(output in values for output in node.outputs):
            continue
        given = [None if value is None else values[value] for value in node.inputs]
        made = table[node.op_type](*given, **attributes(node))
        outputs = made if isinstance(made, tuple) else (made,)
        values.update(zip(node.outputs, outputs, strict=False))
    return values
