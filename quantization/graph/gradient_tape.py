"""The nodes of gradients: written to the end of a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.edit import Attribute, add_constant, array_of
from convertkit.quantization.graph.sizes import sizes

Parts = Sequence[ir.Value | None]
Rule = Callable[["Tape", ir.Node, ir.Value], Parts]
"""The gradients of a node's inputs from that of its first output; None for an input that has none."""


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


def of(node: ir.Node, place: int) -> ir.Value:
    """The input at this place, which the rule needs."""
    value = node.inputs[place] if place < len(node.inputs) else None
    if value is None:
        raise NoRule
    return value


def static(value: ir.Value) -> tuple[int, ...]:
    """The sizes of one sample; where not even their number is known there is no rule."""
    array = array_of(value)
    if array is not None:
        return tuple(array.shape)
    found = sizes(value)
    if not found and (value.shape is None or len(value.shape)):
        raise NoRule
    return found


class Window:
    """Strides, dilations and pads of a node, as attributes for its opposite."""

    def __init__(self, node: ir.Node, kernel: Sequence[int]) -> None:
        rank, given = len(kernel), node.attributes
        self.kernel = tuple(kernel)
        self.strides = tuple(given.get_ints("strides", (1,) * rank))
        self.dilations = tuple(given.get_ints("dilations", (1,) * rank))
        self.pads = tuple(given.get_ints("pads", (0,) * (2 * rank)))
        self.made = static(node.outputs[0])[2:]

    @property
    def attributes(self) -> dict[str, Attribute]:
        return {"strides": self.strides, "dilations": self.dilations, "pads": self.pads}

    def spread(self, tape: Tape, gradient: ir.Value, weight: ir.Value, shape: Sequence[int], group: int) -> ir.Value:
        """What was read through the window gets its gradient back, of this spatial shape."""
        rank = len(self.kernel)
        more = [
            size + self.pads[axis] + self.pads[axis + rank] - (self.made[axis] - 1) * self.strides[axis]
            - (self.kernel[axis] - 1) * self.dilations[axis] - 1
            for axis, size in enumerate(shape)
        ]  # fmt: skip
        return tape.op("ConvTranspose", gradient, weight, **self.attributes, group=group, output_padding=more)
