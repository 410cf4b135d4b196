"""Random small graphs for the property tests: what holds one while it grows, and feeds for it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.targets.tflite.compiled import numbers

FLOAT, INT32, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL
LARGEST = 4000
ROUNDS = {"n": (2, 1, 3), "m": (4, 6, 3)}
"""Sizes of the dynamic axes, feed after feed; the first is what a graph is grown with."""
NO_NUMBERS = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e37, -1e37, 2.5], np.float32)

EDGES = np.array([0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-6, -1e-3, 1.0, -3.0, 6.0], np.float32)
"""Ties of rounding, ends of clamps, signed zeros and small numbers, all of which are exact in binary but the small."""


class Free(int):
    """A size that only a feed tells: ``label`` names it, and sizes of different labels have nothing in common."""

    label: str

    def __new__(cls, size: int, label: str) -> Free:
        made = super().__new__(cls, size)
        made.label = label
        return made


def same(first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    """Whether two shapes are equal whatever the dynamic sizes are."""
    return len(first) == len(second) and all(a == b and _label(a) == _label(b) for a, b in zip(first, second))


def _label(size: int) -> str:
    return size.label if isinstance(size, Free) else ""


def fixed(shape: tuple[int, ...]) -> list[int]:
    """The axes whose size is a number."""
    return [axis for axis, size in enumerate(shape) if not isinstance(size, Free)]


@dataclass
class Graph:
    """A graph that grows by one node at a time; ``special`` grows only what is defined for NaN and infinities."""

    shapes: dict[str, tuple[int, ...]]
    kinds: dict[str, int]
    special: bool = False
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    derived: int = 0

    def constant(self, array: np.ndarray) -> str:
        name = f"k{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def add(
        self, op: str, inputs: list[str], shape: list[int] | tuple[int, ...], kind: int | None = None, **attributes
    ):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        self.shapes[name] = tuple(shape)
        self.kinds[name] = self.kinds[inputs[0]] if kind is None else kind
        return name

    def also(self, name: str, suffix: str, shape: list[int] | tuple[int, ...], kind: int) -> str:
        """Another output of the node that made ``name``."""
        other = f"{name}{suffix}"
        self.nodes[-1].output.append(other)
        self.shapes[other], self.kinds[other] = tuple(shape), kind
        return other

    def sized(self, size: int, *like: int) -> int:
        """``size``, free where one of the sizes that it comes from is."""
        if not any(isinstance(each, Free) for each in like):
            return int(size)
        self.derived += 1
        return Free(size, f"derived{self.derived}")

    def some_constant(self) -> list[str]:
        """The name of a float constant that may be an output, too."""
        floats = [tensor for tensor in self.constants if tensor.data_type == FLOAT and tensor.dims]
        for tensor in floats[:1]:
            self.shapes[tensor.name], self.kinds[tensor.name] = tuple(tensor.dims), FLOAT
        return [tensor.name for tensor in floats[:1]]

    def info(self, name: str) -> onnx.ValueInfoProto:
        sizes = [(size.label if size.label in ROUNDS else None) if isinstance(size, Free) else size
                 for size in self.shapes[name]]  # fmt: skip
        return helper.make_tensor_value_info(name, self.kinds[name], sizes)

    def model(self, extra: list[str]) -> onnx.ModelProto:
        """All unused values are outputs; ``extra`` are outputs too, constants among them."""
        used = {name for node in self.nodes for name in node.input}
        outputs = [name for name in self.shapes if name not in used and name[0] == "v"]
        outputs += [name for name in extra if name not in outputs]
        inputs = [self.info(name) for name in self.shapes if name[0] == "x"]
        results = [self.info(name) for name in outputs]
        graph = helper.make_graph(self.nodes, "g", inputs, results, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def feeds_for(model: onnx.ModelProto, *, special: bool = False) -> list[dict[str, np.ndarray]]:
    """Feeds of other dynamic sizes each: three of noise, one of edges, one of zeros.

    ``special`` ones are three that hold NaN, infinities and large numbers.
    """
    kinds = ["special"] * 3 if special else ["noise", "noise", "noise", "edges", "zeros"]
    return [
        {value.name: _fed(value.type.tensor_type, number % 3, kind) for value in model.graph.input}
        for number, kind in enumerate(kinds)
    ]


def _fed(tensor: onnx.TypeProto.Tensor, turn: int, kind: str) -> np.ndarray:
    rng = np.random.default_rng(turn)
    shape = [ROUNDS[dim.dim_param][turn] if dim.dim_param else dim.dim_value for dim in tensor.shape.dim]
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    if kind == "zeros":
        return np.zeros(shape, dtype)
    if tensor.elem_type == BOOL:
        return np.asarray(rng.random(shape) < 0.5)
    if tensor.elem_type != FLOAT:
        return np.asarray(rng.integers(-9, 9, shape)).astype(dtype)
    if kind == "edges":
        return np.asarray(rng.choice(EDGES, shape))
    drawn = numbers(*shape, seed=turn)
    if kind == "special":
        return np.where(rng.random(shape) < 0.3, rng.choice(NO_NUMBERS, shape), drawn)
    return np.asarray(drawn)
