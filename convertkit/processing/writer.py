"""Operators that are written one after another, with their constants and names of their own."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.edit import Attribute, add_constant


class Writer:
    """Nodes for ``graph``, which the caller puts in their place; names begin with ``stem``."""

    def __init__(self, graph: ir.Graph, stem: str) -> None:
        self.graph, self.stem, self.nodes = graph, stem, list[ir.Node]()

    def ints(self, *numbers: int) -> ir.Value:
        return self.constant(np.array(numbers, np.int64))

    def real(self, number: float) -> ir.Value:
        return self.constant(np.array(number, np.float32))

    def constant(self, array: Array) -> ir.Value:
        return add_constant(self.graph, f"{self.stem}/constant", array)

    def all_of(self, operator: str, *inputs: ir.Value, outputs: int = 1, **attributes: Attribute) -> list[ir.Value]:
        """All outputs of an operator."""
        name = f"{self.stem}/{operator}_{len(self.nodes)}"
        node = ir.node(operator, list(inputs), dict(attributes), num_outputs=outputs, name=name)
        for number, output in enumerate(node.outputs):
            output.name = f"{name}_{number}"
        self.nodes.append(node)
        return list(node.outputs)

    def op(self, operator: str, *inputs: ir.Value, **attributes: Attribute) -> ir.Value:
        """The one output of an operator."""
        return self.all_of(operator, *inputs, outputs=1, **attributes)[0]

    def cut(self, value: ir.Value, start: int, end: int, axis: int = -1) -> ir.Value:
        """From ``start`` to in front of ``end``."""
        return self.op("Slice", value, self.ints(start), self.ints(end), self.ints(axis))

    def greatest(self, value: ir.Value, *, keepdims: int = 0) -> ir.Value:
        """Along the last axis, which is an attribute before opset 18 (ONNX operators, ReduceMax-18)."""
        if self.graph.opset_imports.get("", 0) >= 18:
            return self.op("ReduceMax", value, self.ints(-1), keepdims=keepdims)
        return self.op("ReduceMax", value, axes=[-1], keepdims=keepdims)
