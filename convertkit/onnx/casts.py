"""Casts between a model's interface, or one of its nodes, and the type that is computed in."""

from __future__ import annotations

import onnx_ir as ir


def cast_node(value: ir.Value, to: ir.DataType, name: str) -> ir.Node:
    """A node that is not in a graph yet; it and its result are called ``name``."""
    node = ir.node("Cast", [value], {"to": int(to)}, name=name)
    result = node.outputs[0]
    result.name, result.type, result.shape = name, ir.TensorType(to), value.shape
    return node


def cast_input(graph: ir.Graph, value: ir.Value, outside: ir.DataType, inside: ir.DataType) -> None:
    """Make the input ``value`` of type ``outside``, and cast it for whatever reads it."""
    value.type = ir.TensorType(outside)  # not its dtype, which a clone's values share with those of the model
    users = list(value.uses())
    node = cast_node(value, inside, f"{value.name}/widened")
    for use in users:
        use.node.replace_input_with(use.idx, node.outputs[0])
    for place, output in enumerate(graph.outputs):
        if output is value:
            graph.outputs[place] = node.outputs[0]
    if len(graph):
        graph.insert_before(graph[0], node)
    else:
        graph.append(node)


def cast_output(graph: ir.Graph, place: int, value: ir.Value, outside: ir.DataType) -> None:
    """Make the output at ``place``, which was ``value``, of type ``outside``; it keeps its name."""
    wide = graph.outputs[place]
    name = str(value.name)
    if wide is value:
        value.name = f"{name}/widened"
    node = cast_node(wide, outside, name)
    node.name = f"{name}/narrowed"
    graph.append(node)
    graph.outputs[place] = node.outputs[0]
