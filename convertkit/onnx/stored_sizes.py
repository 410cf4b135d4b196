"""Shapes and small constants of an ONNX graph, by name."""

from __future__ import annotations

import math

import numpy as np
import onnx
import onnx.shape_inference
from onnx import numpy_helper

from convertkit.artifact import Array

_STORED_AS = frozenset({"Identity", "Cast", "DequantizeLinear"})
"""What may stand between a table as it is stored and as it is read."""
SMALL = 1 << 20
"""Elements of a constant that is looked at."""


class StoredSizes:
    """Shapes and constants by name, as far as they are known."""

    def __init__(self, model: onnx.ModelProto) -> None:
        graph = onnx.shape_inference.infer_shapes(model).graph
        values = (*graph.input, *graph.value_info, *graph.output)
        self.nodes = graph.node
        self._shapes = {value.name: _sizes(value) for value in values if value.type.tensor_type.HasField("shape")}
        self._stored = {tensor.name: tensor for tensor in graph.initializer}
        for node in graph.node:
            if node.op_type == "Constant":
                self._stored.update((node.output[0], each.t) for each in node.attribute if each.name == "value")
        self._shapes |= {name: tuple(tensor.dims) for name, tensor in self._stored.items()}
        for node in graph.node:
            if node.op_type in _STORED_AS and node.input[0] in self._stored:
                self._shapes.setdefault(node.output[0], self._shapes[node.input[0]])

    def sizes(self, name: str) -> tuple[int, ...]:
        """Sizes by axis, 0 where a size is not known; nothing where the rank is not."""
        return self._shapes.get(name, ())

    def constant(self, name: str) -> Array | None:
        """A small constant in the file itself."""
        tensor = self._stored.get(name)
        if tensor is None or tensor.data_location == onnx.TensorProto.EXTERNAL or math.prod(tensor.dims) > SMALL:
            return None
        return np.asarray(numpy_helper.to_array(tensor))


def _sizes(value: onnx.ValueInfoProto) -> tuple[int, ...]:
    return tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
