"""Small graph edits that passes share, with names, shapes and types kept in order."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.targets.tflite.marks import set_source
from convertkit.targets.tflite.passes.part import Part


def typed(value: ir.Value, shape: ir.Shape | None, dtype: ir.DataType | None) -> ir.Value:
    """``value`` with a shape and an element type, as far as they are known."""
    value.shape = shape
    if dtype is not None:
        value.dtype = dtype
    return value


def new_constant(graph: ir.Graph, name: str, array: np.ndarray) -> ir.Value:
    """A new initializer, under ``name`` or one like it."""
    free = name
    count = 0
    while free in graph.initializers:
        count += 1
        free = f"{name}.{count}"
    tensor = ir.tensor(array, name=free)
    value = typed(ir.Value(name=free, const_value=tensor), ir.Shape(array.shape), tensor.dtype)
    graph.register_initializer(value)
    return value


def drop(node: ir.Node, replacement: ir.Value) -> None:
    """Remove ``node`` and let its users, the graph's outputs among them, use ``replacement``.

    A graph output keeps its name: the replacement takes it.
    """
    old = node.outputs[0]
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    outputs = [place for place, value in enumerate(graph.outputs) if value is old]
    if outputs:
        name = old.name
        old.name = f"{name}/dropped"
        replacement.name = name
        for place in outputs:
            graph.outputs[place] = replacement
    old.replace_all_uses_with(replacement)
    graph.remove(node, safe=True)


def can_drop(node: ir.Node, replacement: ir.Value) -> bool:
    """Whether :meth:`drop` keeps the interface: the replacement is free to take an output's name."""
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


def only_user(value: ir.Value) -> ir.Node | None:
    """The one node that uses ``value``, None where there are others or the interface has it."""
    uses = list(value.uses())
    if len(uses) != 1 or value.is_graph_output():
        return None
    return uses[0].node


def constant(value: ir.Value | None) -> np.ndarray | None:
    """The contents of an initializer."""
    return None if value is None or value.const_value is None else value.const_value.numpy()


def is_weight(value: ir.Value | None) -> bool:
    """Whether ``value`` is an initializer, or one behind Dequantize or Cast: known when the model is converted."""
    if value is None:
        return False
    if value.const_value is not None:
        return True
    node = value.producer()
    if node is None or (node.domain, node.op_type) not in (("convertkit.tflite", "Dequantize"), ("", "Cast")):
        return False
    return node.inputs[0] is not None and node.inputs[0].const_value is not None


def drop_identities(part: Part) -> None:
    """Remove Identity nodes, in place; one between an input and an output stays."""
    for node in list(part.graph):
        source = node.inputs[0] if node.inputs else None
        if node.op_type == "Identity" and node.domain == "" and source is not None and can_drop(node, source):
            drop(node, source)


def drop_if_unused(node: ir.Node) -> None:
    """Remove a node whose outputs nothing uses."""
    if node.graph is not None and not any(value.uses() or value.is_graph_output() for value in node.outputs):
        node.graph.remove(node, safe=True)
