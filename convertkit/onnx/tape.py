"""Writes the nodes of a graph that a converter makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array, Dim

Attribute = int | float | str | Sequence[int]
OPSET = 20
"""The first opset with Gelu."""


class Tape:
    """Nodes in their order and the constants that they read; names begin with the ``place`` they are written at."""

    def __init__(self) -> None:
        self._graph = ir.Graph([], [], nodes=[], opset_imports={"": OPSET}, name="main")
        self._constants: dict[tuple[str, tuple[int, ...], bytes], ir.Value] = {}
        self.place = ""

    def op(self, kind: str, *inputs: ir.Value, **attributes: Attribute) -> ir.Value:
        """Append an operator with one result."""
        return self.ops(kind, *inputs, count=1, **attributes)[0]

    def ops(self, kind: str, *inputs: ir.Value, count: int, **attributes: Attribute) -> Sequence[ir.Value]:
        """Append an operator with ``count`` results."""
        name = f"{self.place}/{kind}_{len(self._graph)}"
        node = ir.node(kind, list(inputs), attributes, num_outputs=count, name=name)
        for place, value in enumerate(node.outputs):
            value.name = f"{name}_{place}" if count > 1 else name
        self._graph.append(node)
        return node.outputs

    def recurrent(
        self,
        kind: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, int | str],
        activations: Sequence[str],
        count: int,
    ) -> Sequence[ir.Value]:
        """Append LSTM, GRU or RNN, some of whose inputs may be left out."""
        name = f"{self.place}/{kind}_{len(self._graph)}"
        more = {"activations": list(activations)} if activations else {}
        node = ir.node(kind, list(inputs), {**attributes, **more}, num_outputs=count, name=name)
        for place, value in enumerate(node.outputs):
            value.name = f"{name}_{place}"
        self._graph.append(node)
        return node.outputs

    def ints(self, *values: int) -> ir.Value:
        """A vector of int64."""
        return self._small(np.array(values, np.int64))

    def whole(self, value: int) -> ir.Value:
        """One int64."""
        return self._small(np.array(value, np.int64))

    def number(self, value: float) -> ir.Value:
        """One float32."""
        return self._small(np.array(value, np.float32))

    def weight(self, array: Array, name: str) -> ir.Value:
        """A constant of the model's own."""
        value = ir.Value(name=name, const_value=ir.Tensor(array, name=name))
        value.shape, value.type = ir.Shape(array.shape), ir.TensorType(ir.DataType.from_numpy(array.dtype))
        self._graph.register_initializer(value)
        return value

    def input(self, name: str, dtype: ir.DataType, *dims: Dim) -> ir.Value:
        """Declare an input of the model."""
        value = ir.Value(name=name, shape=ir.Shape(dims), type=ir.TensorType(dtype))
        self._graph.inputs.append(value)
        return value

    def output(self, value: ir.Value, name: str, *dims: Dim | None) -> None:
        """Declare a result of the model, float32."""
        value.name, value.shape, value.type = name, ir.Shape(dims), ir.TensorType(ir.DataType.FLOAT)
        self._graph.outputs.append(value)

    def model(self) -> ir.Model:
        """What was written."""
        return ir.Model(self._graph, ir_version=10)

    def _small(self, array: Array) -> ir.Value:
        key = (array.dtype.name, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self.weight(array, f"constant_{len(self._constants)}")
        return self._constants[key]
