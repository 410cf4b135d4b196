"""What a node would do with permuted tensors: one plan for each world."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import add_constant
from convertkit.targets.tflite.passes.layout.perms import Perm, identity


@dataclass(frozen=True, slots=True)
class Plan:
    """How a node's inputs must be stored and how its outputs will be, by place.

    Inputs that are not listed stay as the source has them.  ``cost`` is what the node itself then
    costs, in bytes moved.
    """

    inputs: dict[int, Perm]
    outputs: dict[int, Perm]
    cost: int = 0


class LayoutRule(Protocol):
    """Knows how operators of one kind work on permuted tensors."""

    def forward(self, node: ir.Node, place: int, perm: Perm) -> Plan | None:
        """The plan when input ``place`` is stored as ``perm``; None where the operator cannot."""
        ...

    def backward(self, node: ir.Node, perm: Perm) -> Plan | None:
        """The plan that leaves the first output stored as ``perm``."""
        ...

    def rewrite(self, node: ir.Node, plan: Plan) -> None:
        """Change attributes and constant inputs after the data inputs have been replaced."""
        ...


@dataclass(slots=True)
class Constants:
    """Makes initializers of a graph; one for each content."""

    graph: ir.Graph
    count: int = field(default=0)

    def add(self, array: np.ndarray) -> ir.Value:
        """A new initializer."""
        self.count += 1
        name = f"layout/const_{self.count}"
        while name in self.graph.initializers:
            self.count += 1
            name = f"layout/const_{self.count}"
        return add_constant(self.graph, name, array)


def rank_of(value: ir.Value | None) -> int | None:
    """Number of dimensions, None where not known."""
    if value is None or value.shape is None:
        return None
    return len(value.shape)


def sizes_of(value: ir.Value) -> tuple[int | str, ...] | None:
    """Sizes, names for dynamic ones; None where a dynamic one has no name."""
    if value.shape is None:
        return None
    sizes = tuple(size if isinstance(size, int) else size.value for size in value.shape)
    return None if any(size is None for size in sizes) else sizes  # type: ignore[return-value]


def elements(value: ir.Value | None) -> int:
    """Number of elements, dynamic sizes counted as 1."""
    if value is None or value.shape is None:
        return 0
    return int(np.prod([size if isinstance(size, int) else 1 for size in value.shape]))


def moved_bytes(value: ir.Value | None) -> int:
    """What transposing ``value`` moves: integers are cheaper than the floats that they stand for."""
    width = 4 if value is None or value.dtype in (None, ir.DataType.STRING) else value.dtype.itemsize
    return int(elements(value) * width)


def constant_of(value: ir.Value | None) -> np.ndarray | None:
    """The contents of an initializer."""
    if value is None or value.const_value is None:
        return None
    return value.const_value.numpy()


def integers(node: ir.Node, place: int) -> list[int] | None:
    """A constant input as a list of integers; None where it is computed or absent."""
    value = node.inputs[place] if place < len(node.inputs) else None
    array = constant_of(value)
    return None if array is None else [int(item) for item in array.reshape(-1)]


def attribute(node: ir.Node, name: str, default: int) -> int:
    """An integer attribute."""
    found = node.attributes.get(name)
    return default if found is None else int(found.value)


def set_attribute(node: ir.Node, name: str, value: int | Sequence[int]) -> None:
    """Set an integer attribute, or a list of them."""
    made = ir.AttrInt64(name, value) if isinstance(value, int) else ir.AttrInt64s(name, list(value))
    node.attributes[name] = made


def set_integers(node: ir.Node, place: int, values: Sequence[int]) -> None:
    """Replace a constant input by other int64 numbers."""
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    value = Constants(graph, len(graph.initializers)).add(np.array(values, np.int64))
    node.resize_inputs(max(len(node.inputs), place + 1))
    node.replace_input_with(place, value)


def stays(node: ir.Node) -> Plan:
    """Everything as the source has it."""
    inputs = {place: identity(rank) for place, value in enumerate(node.inputs) if (rank := rank_of(value)) is not None}
    outputs = {
        place: identity(rank) for place, value in enumerate(node.outputs) if (rank := rank_of(value)) is not None
    }
    return Plan(inputs, outputs)
