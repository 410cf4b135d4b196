"""An operator of TensorFlow that is written in ONNX's, for the handlers that tf2onnx is given.

Imports tf2onnx, and with it TensorFlow, therefore only ever imported in a worker process.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from convertkit.artifact import Array
from convertkit.converters.tensorflow.compat import numpy_type

BOOL, INT32, INT64 = onnx.TensorProto.BOOL, onnx.TensorProto.INT32, onnx.TensorProto.INT64
FLOAT, UINT8 = onnx.TensorProto.FLOAT, onnx.TensorProto.UINT8


class Form:
    """What stands for one node; values go by their names in tf2onnx's graph."""

    def __init__(self, ctx: Any, node: Any) -> None:
        self.ctx, self.node = ctx, node
        self._made = 0

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """The output of a new node."""
        return str(self.ctx.make_node(kind, list(inputs), attr=attributes).output[0])

    def several(self, count: int, kind: str, *inputs: str, **attributes: Any) -> list[str]:
        """The outputs of a new node that has several."""
        return list(self.ctx.make_node(kind, list(inputs), attr=attributes, output_count=count).output)

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        """A constant of a NumPy type, that of whole numbers unless told."""
        self._made += 1
        return str(self.ctx.make_const(f"{self.node.name}_k{self._made}", np.asarray(value, dtype)).output[0])

    def like(self, value: Any, place: int = 0) -> str:
        """A constant of the type of an input."""
        return self.constant(value, self.numpy(place))

    def numpy(self, place: int = 0) -> Any:
        """NumPy's type of an input."""
        return numpy_type(self.dtype(place))

    def dtype(self, place: int = 0) -> int:
        """ONNX's element type of an input."""
        return int(self.ctx.get_dtype(self.node.input[place]))

    def shape(self, place: int = 0) -> list[int]:
        """The shape of an input, -1 where a size is dynamic; ``ValueError`` where even the rank is unknown."""
        found = self.ctx.get_shape(self.node.input[place])
        if found is None:
            raise ValueError(f"{self.node.type}: the rank of input {place} is unknown")
        return [int(size) for size in found]

    def known(self, place: int) -> Array:
        """An input's numbers; ``ValueError`` where they are computed."""
        if not self.node.inputs[place].is_const():
            raise ValueError(f"{self.node.type}: input {place} is computed at run time")
        return np.asarray(self.node.inputs[place].get_tensor_value(as_list=False))

    def flag(self, name: str, default: Any = False) -> Any:
        """An attribute, text as text."""
        value = self.node.get_attr_value(name, default)
        return value.decode() if isinstance(value, bytes) else value

    def cast(self, value: str, dtype: int) -> str:
        """The value in another type."""
        return self.op("Cast", value, to=dtype)

    def part(self, value: str, axis: int, start: int, end: int, step: int = 1) -> str:
        """A range of one axis."""
        return self.op("Slice", value, *(self.constant([each]) for each in (start, end, axis, step)))

    def end(self, *results: str) -> None:
        """The node's outputs are these values from now on; outputs beyond them are gone."""
        shapes, dtypes, outputs = self.node.output_shapes, self.node.output_dtypes, self.node.output
        name = self.node.name
        self.ctx.remove_node(name)
        for place, result in enumerate(results):
            self.ctx.make_node(
                "Identity", [result], name=name if not place else f"{name}_{place}", outputs=[outputs[place]],
                shapes=[shapes[place]], dtypes=[dtypes[place]],
            )  # fmt: skip
