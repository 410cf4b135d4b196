"""The nodes of gradients: written to the end of a graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.edit import Attribute, add_constant, array_of
from convertkit.quantization.graph.sizes import sizes


class NoRule(Exception):
    """A node whose gradient is not known."""


class Tape:
    """Nodes at the end of a graph."""

    def __init__(self, graph: ir.Graph) -> None:
        self.graph = graph
        self._count = 0

    def op(self, operator: str, *inputs: ir.Value, **attributes: Attribute) -> ir.Value:
        """The last output of a new node, of a pool the places of its maxima."""
        self._count += 1
        count = 2 if operator == "MaxPool" else 1
        node = ir.node(operator, list(inputs), attributes, num_outputs=count, name=f"__gradient_{self._count}")
        for place, value in enumerate(node.outputs):
            value.name = f"__gradient_{self._count}_{place}"
        self.graph.append(node)
        return node.outputs[-1]

    def constant(self, array: Array | Sequence[int]) -> ir.Value:
        """An initializer; whole numbers as int64."""
        return add_constant(self.graph, "__gradient_constant", np.asarray(array))

    def real(self, number: float) -> ir.Value:
        """A float32 scalar."""
        return self.constant(np.array(number, np.float32))

    def like(self, gradient: ir.Value, value: ir.Value) -> ir.Value:
        """``gradient`` in the shape of ``value``, of as many elements."""
        return self.op("Reshape", gradient, self.op("Shape", value))

    def summed(self, gradient: ir.Value, output: ir.Value, value: ir.Value) -> ir.Value:
        """The gradient of what was broadcast from ``value`` to ``output``."""
        whole, small = static(output), static(value)
        small = (1,) * (len(whole) - len(small)) + small
        axes = [axis for axis, (one, other) in enumerate(zip(whole, small, strict=True)) if one != other]
        return self.like(self.op("ReduceSum", gradient, self.constant(axes)) if axes else gradient, value)


def static(value: ir.Value) -> tuple[int, ...]:
    """The sizes of one sample; where not even their number is known there is no rule."""
    array = array_of(value)
    if array is not None:
        return tuple(array.shape)
    found = sizes(value)
    if not found and (value.shape is None or len(value.shape)):
        raise NoRule
    return found
