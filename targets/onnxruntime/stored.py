"""Integer weights as the graph holds them: ``DequantizeLinear`` of a constant, and who reads it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array

_LARGE = 1 << 16
"""Weights that take longer to read than a call takes to begin."""
_STORED = frozenset({ir.DataType.INT8, ir.DataType.INT4})


@dataclass(frozen=True, slots=True)
class Stored:
    """A constant's integers, and scales: one for all, one per slice along ``axis``, or per ``block`` of it (else 0)."""

    integers: ir.Value
    scale: ir.Value
    axis: int
    block: int

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(int(size) for size in array_of(self.integers).shape)

    @property
    def scales(self) -> Array:
        return array_of(self.scale)


def stored_weight(node: ir.Node | None) -> Stored | None:
    """What a node makes real, if that is a constant of int8 or int4 with more than one number and no zero point."""
    if node is None or node.op_type != "DequantizeLinear" or node.domain or node.outputs[0].is_graph_output():
        return None
    integers, scale, zero = (*node.inputs, None)[:3]
    if integers is None or scale is None or not all(_is_constant(each) for each in (integers, scale, zero)):
        return None
    if integers.dtype not in _STORED or not integers.shape or (zero is not None and array_of(zero).any()):
        return None
    axis = node.attributes.get_int("axis", 1) % len(integers.shape)
    return Stored(integers, scale, axis, node.attributes.get_int("block_size", 0))


def is_large(weight: Stored) -> bool:
    """Whether a product of one row waits for its weight more than it computes."""
    return math.prod(weight.shape) >= _LARGE


def readers(node: ir.Node) -> list[ir.Node]:
    """Nodes that read the only output of ``node``."""
    return [use.node for use in node.outputs[0].uses()]


def rows(value: ir.Value) -> int | None:
    """How many rows a matrix product multiplies; a dynamic batch counts as one, None where another size is dynamic."""
    if value.shape is None:
        return None
    sizes = list(value.shape)[:-1]
    fixed = [1 if place == 0 and not isinstance(size, int) else size for place, size in enumerate(sizes)]
    return (
        math.prod(size for size in fixed if isinstance(size, int)) if all(isinstance(s, int) for s in fixed) else None
    )


def remove(graph: ir.Graph, node: ir.Node) -> None:
    """Take a node that nothing reads out, with the constants that it alone read."""
    constants = dict.fromkeys(value for value in node.inputs if value is not None and value.is_initializer())
    graph.remove(node, safe=True)
    for value in constants:
        if value.name is not None and not value.uses() and not value.is_graph_output():
            del graph.initializers[value.name]


def array_of(value: ir.Value) -> Array:
    """The array of an initializer."""
    assert value.const_value is not None
    return np.asarray(value.const_value.numpy())


def _is_constant(value: ir.Value | None) -> bool:
    return value is None or (value.is_initializer() and value.const_value is not None)
