"""Edits of ONNX graphs that every part of the quantizer makes."""

from __future__ import annotations

import onnx_ir as ir

from convertkit.artifact import Array


def drop_unused(graph: ir.Graph) -> None:
    """Remove initializers that nothing reads any more."""
    for name, value in tuple(graph.initializers.items()):
        if not value.uses() and not value.is_graph_output():
            del graph.initializers[name]


def add_constant(graph: ir.Graph, name: str, array: Array) -> ir.Value:
    """A new initializer; ``name`` gets a number where it is taken."""
    taken, number = graph.initializers, 0
    unique = name
    while unique in taken:
        number += 1
        unique = f"{name}_{number}"
    # Not ir.tensor(): it asks every protocol it knows, and a trial adds hundreds of constants.
    value = ir.Value(name=unique, const_value=ir.Tensor(array, name=unique))
    value.dtype, value.shape = ir.DataType.from_numpy(array.dtype), ir.Shape(array.shape)
    graph.register_initializer(value)
    return value


def bypass(node: ir.Node, value: ir.Value) -> None:
    """Let everything that read the node's only output read ``value``, which keeps an output's name."""
    graph = node.graph
    assert graph is not None
    ir.convenience.replace_all_uses_with(node.outputs[0], value, replace_graph_outputs=True)
    if node.outputs[0].name and value.is_graph_output() and value.producer() is not None:
        name, node.outputs[0].name = node.outputs[0].name, None
        value.name = name
    graph.remove(node, safe=True)
