"""Changing a graph in place: constants, nodes put in, taken over and taken out; and who reads a value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array

Attribute = int | float | str | Sequence[int]
_NONE: Mapping[str, Attribute] = {}


def replaced(
    node: ir.Node, operator: str, inputs: Sequence[ir.Value], attributes: Mapping[str, Attribute] = _NONE
) -> ir.Node:
    """A new node, of the same name, that computes the one output of ``node``, which is taken out."""
    old = node.outputs[0]
    made = inserted(node, operator, inputs, old, attributes)
    name, new = old.name, made.outputs[0]
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    assert node.graph is not None
    node.graph.remove(node, safe=True)
    new.name = name
    made.name = node.name or made.name
    return made


def inserted(
    before: ir.Node,
    operator: str,
    inputs: Sequence[ir.Value],
    like: ir.Value,
    attributes: Mapping[str, Attribute] = _NONE,
    shape: ir.Shape | None = None,
) -> ir.Node:
    """A new node in front of ``before``, its output of the dtype and (unless given) the shape of ``like``.

    Both are called after ``like`` and the operator, with a number where the graph has such a value already.
    """
    assert before.graph is not None
    stem = _free_name(before.graph, f"{like.name}/{operator}")
    made = ir.node(operator, list(inputs), dict(attributes), name=stem)
    result = made.outputs[0]
    result.name, result.shape, result.type = stem, like.shape if shape is None else shape, like.type
    made.metadata_props.update(before.metadata_props)
    before.graph.insert_before(before, made)
    return made


def _free_name(graph: ir.Graph | ir.Function, stem: str) -> str:
    """``stem``, or ``stem_1``, ``stem_2``, … where nodes of the graph make a value of that name."""
    taken = {value.name for node in graph for value in node.outputs if value.name and value.name.startswith(stem)}
    name, number = stem, 0
    while name in taken:
        number += 1
        name = f"{stem}_{number}"
    return name


def add_constant(graph: ir.Graph, name: str, array: Array, separator: str = "_") -> ir.Value:
    """A new initializer; a ``name`` that is taken gets a number behind ``separator``, underscores without one."""
    unique, number = name, 0
    while unique in graph.initializers:
        number += 1
        unique = f"{name}{separator}{number}" if separator else f"{unique}_"
    # Not ir.tensor(): it asks every protocol it knows, and a trial of the quantizer adds hundreds of constants.
    value = ir.Value(name=unique, const_value=ir.Tensor(array, name=unique))
    value.type, value.shape = ir.TensorType(ir.DataType.from_numpy(array.dtype)), ir.Shape(array.shape)
    graph.register_initializer(value)
    return value


def initializer(node: ir.Node, array: Array, name: str) -> ir.Value:
    """A constant in the graph of ``node``."""
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    return add_constant(graph, name, np.asarray(array, order="C"), separator="")


def drop_unused(graph: ir.Graph) -> None:
    """Remove initializers that nothing reads any more."""
    for name, value in tuple(graph.initializers.items()):
        if not value.uses() and not value.is_graph_output():
            del graph.initializers[name]


def bypass(node: ir.Node, value: ir.Value) -> None:
    """Take ``node`` out; what read its one output reads ``value``, which takes over the name of an output.

    Of the interface nothing may be lost: see :func:`dropped` for a ``value`` that is an input or an output itself.
    """
    graph = node.graph
    assert graph is not None
    stands_for(value, node.outputs[0])
    graph.remove(node, safe=True)


def stands_for(value: ir.Value, old: ir.Value) -> None:
    """What read ``old`` reads ``value``.

    It takes over the name of an output, unless it is one, or an input, itself.
    """
    name, takes_over = old.name, old.is_graph_output() and not (value.is_graph_output() or value.is_graph_input())
    old.replace_all_uses_with(value, replace_graph_outputs=True)
    if name and takes_over:
        old.name = None
        value.name = name


def dropped(node: ir.Node, source: ir.Value) -> None:
    """Take ``node`` out; ``source``, which is equal to its one output, stands for it."""
    old = node.outputs[0]
    if old.is_graph_output():
        replaced(node, "Identity", [source])
        return
    old.replace_all_uses_with(source)
    assert node.graph is not None
    node.graph.remove(node, safe=True)


def only_user(value: ir.Value) -> ir.Node | None:
    """The one node that uses ``value``, once; None where there are others or it is an output."""
    uses = list(value.uses())
    return None if len(uses) != 1 or value.is_graph_output() else uses[0].node


def only_reader(value: ir.Value) -> ir.Node | None:
    """The one node that reads ``value``, perhaps more than once; None where there are others or it is an output."""
    readers = {use.node for use in value.uses()}
    return None if len(readers) != 1 or value.is_graph_output() else readers.pop()


def producer(value: ir.Value | None, operator: str) -> ir.Node | None:
    """The node of this ONNX operator that computes ``value``, else None."""
    node = None if value is None else value.producer()
    return node if node is not None and node.op_type == operator and node.domain == "" else None


def array_of(value: ir.Value | None) -> Array | None:
    """A constant's elements, None where the value is computed."""
    if value is None or value.const_value is None:
        return None
    elements: Array = value.const_value.numpy()
    return elements


def sizes(value: ir.Value | None) -> tuple[int | None, ...] | None:
    """The shape with None for what only the running model knows; None where not even the rank is known."""
    if value is None or value.shape is None:
        return None
    return tuple(size if isinstance(size, int) else None for size in value.shape)


def is_same_size(one: int | ir.SymbolicDim, other: int | ir.SymbolicDim) -> bool:
    """Whether two sizes are known to be equal: numbers, or names; two that have no name need not be."""
    return one == other and (isinstance(one, int) or one.value is not None)


def is_same_shape(one: ir.Shape | None, other: ir.Shape | None) -> bool:
    """Whether two shapes are known to be equal."""
    if one is None or other is None or len(one) != len(other):
        return False
    return all(is_same_size(a, b) for a, b in zip(one, other, strict=True))


def axes_of(node: ir.Node, rank: int) -> tuple[int, ...] | None:
    """The axes of a reduction, none of them negative; None where they are not constant."""
    axes = array_of(node.inputs[1]) if len(node.inputs) > 1 else None
    return None if axes is None else tuple(sorted(int(axis) % rank for axis in axes.reshape(-1)))


def is_float32(value: ir.Value | None) -> bool:
    """Whether a value is known to be float32."""
    return value is not None and value.dtype == ir.DataType.FLOAT
