"""One node of the model while it is computed: its operands, its attributes, its roundings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.errors import Unsupported
from convertkit.onnx.twin.choices import Choices
from convertkit.onnx.twin.noise import Noise
from convertkit.onnx.twin.values import Tensor, Value, real

Results = Sequence[Value]
RunGraph = Callable[[ir.Graph, Sequence[Value]], tuple[Value, ...]]


@dataclass(frozen=True, slots=True)
class Call:
    """``run_graph`` computes a subgraph with the given inputs; what it reads from outside it finds itself."""

    node: ir.Node
    inputs: tuple[Value, ...]
    noise: Noise
    opsets: Mapping[str, int]
    run_graph: RunGraph
    choices: Choices

    @property
    def opset(self) -> int:
        """Of the node's domain."""
        return self.opsets.get(self.node.domain, self.opsets.get("", 1) if not self.node.domain else 1)

    @property
    def title(self) -> str:
        """For messages."""
        domain = f"{self.node.domain}." if self.node.domain else ""
        return f"{self.node.name or self.node.outputs[0].name} ({domain}{self.node.op_type}-{self.opset})"

    def given(self, place: int) -> Value:
        """The operand at ``place``, None where there is none."""
        return self.inputs[place] if place < len(self.inputs) else None

    def tensor(self, place: int) -> Tensor:
        """The tensor at ``place``."""
        value = self.given(place)
        if not isinstance(value, Tensor):
            raise Unsupported(f"operand {place} is not a tensor", subject=self.title)
        return value

    def array(self, place: int) -> Array:
        """The array at ``place``."""
        return self.tensor(place).array

    def optional(self, place: int) -> Array | None:
        """The array at ``place``, None where there is none."""
        value = self.given(place)
        return value.array if isinstance(value, Tensor) else None

    @property
    def dtype(self) -> ir.DataType:
        """The model's element type of the first float operand; float32 where no operand is a float."""
        floats = (value.dtype for value in self.inputs if isinstance(value, Tensor) and value.is_real)
        return next(floats, ir.DataType.FLOAT)

    def rounded(self, array: Array | float, terms: float = 1.0, dtype: ir.DataType | None = None) -> Tensor:
        """A result, rounded as the model's element type is; a sum of ``terms`` products."""
        return real(self.step(array, terms, dtype), dtype or self.dtype)

    def step(self, array: Array | float, terms: float = 1.0, dtype: ir.DataType | None = None) -> Array:
        """An intermediate result that kernels round."""
        return self.noise.result(np.asarray(array, np.float64), dtype or self.dtype, terms)

    def number(self, name: str, default: float) -> float:
        """A float attribute with the float32 value that kernels read."""
        return float(np.float32(self.node.attributes.get_float(name, default)))

    def numbers(self, name: str) -> list[float]:
        """A list of such attributes, empty where it is not given."""
        return [float(np.float32(each)) for each in self.node.attributes.get_floats(name, ())]

    def whole(self, name: str, default: int = 0) -> int:
        """An integer attribute."""
        return int(self.node.attributes.get_int(name, default))

    def wholes(self, name: str) -> tuple[int, ...] | None:
        """A list of integers, None where it is not given."""
        found = self.node.attributes.get_ints(name, None)
        return None if found is None else tuple(int(each) for each in found)

    def text(self, name: str, default: str) -> str:
        """A string attribute."""
        return str(self.node.attributes.get_string(name, default))

    def graph(self, name: str) -> ir.Graph:
        """A subgraph."""
        return self.node.attributes[name].as_graph()


Handler = Callable[[Call], Results | None]
"""Computes a node; None where its operands are not what the handler is for."""
