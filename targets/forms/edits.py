"""Small graph edits that passes share, with names, shapes and types kept in order."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import add_constant
from convertkit.targets.forms.source import set_source


def typed(value: ir.Value, shape: ir.Shape | None, dtype: ir.DataType | None) -> ir.Value:
    """``value`` with a shape and an element type, as far as they are known."""
    value.shape = shape
    if dtype is not None:
        value.type = ir.TensorType(dtype)
    return value


def new_constant(graph: ir.Graph, name: str, array: np.ndarray) -> ir.Value:
    """A new initializer, under ``name`` or one like it."""
    return add_constant(graph, name, array, separator=".")


def can_drop(node: ir.Node, replacement: ir.Value) -> bool:
    """Whether ``bypass`` keeps the interface: the replacement is free to take an output's name."""
    if not node.outputs[0].is_graph_output():
        return True
    taken = replacement.is_graph_output() or replacement.is_graph_input() or replacement.const_value is not None
    return not taken


def insert_before(node: ir.Node, new: ir.Node, *, like: ir.Value) -> ir.Value:
    """Put ``new`` in front of ``node``; its output gets the shape and type of ``like``."""
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    result = typed(new.outputs[0], like.shape, like.dtype)
    set_source(new, node)
    graph.insert_before(node, new)
    return result


def drop_if_unused(node: ir.Node) -> None:
    """Remove a node whose outputs nothing uses."""
    if node.graph is not None and not any(value.uses() or value.is_graph_output() for value in node.outputs):
        node.graph.remove(node, safe=True)
