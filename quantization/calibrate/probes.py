"""Nodes that measure tensors, added to a copy of the model.

What calibration costs beyond the bare model is reading every tensor once more, so as little as possible is read:
values that are only moved are measured once, what a monotone operator makes of a measured tensor is made of that
tensor's extremes and values, and where no value is negative the least one is not looked for.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from convertkit.artifact import NEXT_STATE_PREFIX, Array
from convertkit.quantization.calibrate.range_dependencies import RangeDependencies, Step, monotone_step, same_numbers

_KEPT = 2048
"""Values of each tensor and sample that go into its histogram; the extremes are exact in any case."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Names of the outputs that tell of one tensor: some of its values, its greatest and its least.

    ``low`` is missing where no value is negative: zero, which is in every range anyway, stands for the least.
    """

    values: str
    high: str
    low: str | None

    @property
    def outputs(self) -> tuple[str, ...]:
        """What to fetch."""
        return (self.values, self.high) if self.low is None else (self.values, self.high, self.low)

    def read(self, answer: Mapping[str, Array]) -> tuple[float, float, Array]:
        """Least and greatest value, and the values to count; of an empty tensor there are none."""
        high: float = answer[self.high].item()
        low: float = 0.0 if self.low is None else answer[self.low].item()
        # Behind an operator that turns the order round they have changed places.
        return min(low, high), max(low, high), answer[self.values].ravel()


def instrumented(model: ir.Model, names: Collection[str]) -> tuple[ir.Model, dict[str, Probe]]:
    """A copy of the model that computes next states and probes, and the probe of each named value.

    Values that hold the same numbers share one probe.
    """
    copy = model.clone()
    graph = copy.graph
    graph.outputs[:] = [v for v in graph.outputs if str(v.name).startswith(NEXT_STATE_PREFIX)]
    values = [v for v in (*graph.inputs, *(v for node in graph for v in node.outputs)) if v.name in names]
    measured: dict[ir.Value, ir.Value] = {}
    shown = {value: measured.setdefault(same_numbers(value), value) for value in values}
    builder = _Builder(graph, RangeDependencies(graph, measured))
    # ONNX Runtime works its way from the last leaf of the graph to the first.  With the probe of the earliest tensor
    # as the last leaf each tensor is measured while it is in the cache, and lives no longer than in the bare model.
    # Nothing else may be a leaf: what leads to no output goes.
    places = {value: place for place, value in enumerate(values)}
    order = sorted(measured.values(), key=lambda value: (-places[builder.dependencies.origin(value)], places[value]))
    probes = {value: builder.probe(value, places[value]) for value in order}
    if graph.outputs:  # ONNX Runtime loads no empty graph
        RemoveUnusedNodesPass()(copy)
    return copy, {str(value.name): probes[shown[value]] for value in values}


@dataclass(frozen=True, slots=True)
class _Parts:
    """What is measured of one tensor, as values of the graph."""

    values: ir.Value
    high: ir.Value
    low: ir.Value | None


class _Builder:
    """Adds probes behind the last node of a graph."""

    def __init__(self, graph: ir.Graph, dependencies: RangeDependencies) -> None:
        self.dependencies = dependencies
        self._graph = graph
        self._parts: dict[ir.Value, _Parts] = {}

    def probe(self, value: ir.Value, index: int) -> Probe:
        """Add what measures one value; the value that it derives from has its probe already."""
        count, has_low = _count(value), not self.dependencies.is_never_negative(value)
        source, step = self.dependencies.source(value), monotone_step(value)
        if source is not None and step is not None:
            parts = self._derived(step, self._parts[source], has_low, index)
        elif count is not None and self.dependencies.is_blocked(value) and not has_low:
            parts = self._pooled(value, math.isqrt(count // _KEPT) | 1, index)
        else:
            # Odd: an even stride would see only some channels.
            parts = self._reduced(value, max(1, (count or 1) // _KEPT) | 1, has_low, index)
        self._parts[value] = parts
        self._graph.outputs.extend(part for part in (parts.values, parts.high, parts.low) if part is not None)
        return Probe(str(parts.values.name), str(parts.high.name), None if parts.low is None else str(parts.low.name))

    def _reduced(self, value: ir.Value, step: int, has_low: bool, index: int) -> _Parts:
        flat = self._flat(value, f"__all_{index}")
        numbers = [self._number(number) for number in (0, np.iinfo(np.int64).max, 0, step)]
        values = self._add("Slice", [flat, *numbers], f"__values_{index}", (), (None,))
        low = self._extreme("ReduceMin", flat, f"__low_{index}") if has_low else None
        return _Parts(values, self._extreme("ReduceMax", flat, f"__high_{index}"), low)

    def _pooled(self, value: ir.Value, step: int, index: int) -> _Parts:
        """A feature map behind a Relu: by pooling, which ONNX Runtime does in the layout of its convolutions."""
        window = [ir.AttrInt64s("kernel_shape", [1, 1]), ir.AttrInt64s("strides", [step, step])]
        grid = self._add("MaxPool", [value], f"__grid_{index}", window, (None,) * 4)
        tops = self._add("GlobalMaxPool", [value], f"__tops_{index}", (), (None, None, 1, 1))
        values = self._flat(grid, f"__values_{index}")
        return _Parts(values, self._extreme("ReduceMax", tops, f"__high_{index}"), None)

    def _derived(self, step: Step, known: _Parts, has_low: bool, index: int) -> _Parts:
        """What was measured of the source, each through a copy of the operator."""
        node = step.node

        def again(part: ir.Value, name: str) -> ir.Value:
            inputs = [*node.inputs[: step.place], part, *node.inputs[step.place + 1 :]]
            return self._add(node.op_type, inputs, f"__{name}_{index}", tuple(node.attributes.values()))

        low = again(known.low, "low") if has_low and known.low is not None else None
        return _Parts(again(known.values, "values"), again(known.high, "high"), low)

    def _flat(self, value: ir.Value, name: str) -> ir.Value:
        return self._add("Reshape", [value, self._number(-1)], name, (), (None,))

    def _extreme(self, op: str, value: ir.Value, name: str) -> ir.Value:
        return self._add(op, [value], name, [ir.AttrInt64("keepdims", 0)], ())

    def _add(
        self,
        op: str,
        inputs: Sequence[ir.Value | None],
        name: str,
        attributes: Sequence[ir.Attr] = (),
        shape: tuple[int | None, ...] | None = None,
    ) -> ir.Value:
        node = ir.Node("", op, inputs, attributes, num_outputs=1, name=name)
        output = node.outputs[0]
        output.name, output.type = name, ir.TensorType(ir.DataType.FLOAT)
        output.shape = None if shape is None else ir.Shape(shape)
        self._graph.append(node)
        return output

    def _number(self, number: int) -> ir.Value:
        """An initializer of one number; probes share them."""
        name = f"__number_{number}"
        if name not in self._graph.initializers:
            value = ir.Value(name=name, const_value=ir.Tensor(np.array([number], np.int64), name=name))
            value.type, value.shape = ir.TensorType(ir.DataType.INT64), ir.Shape([1])
            self._graph.register_initializer(value)
        return self._graph.initializers[name]


def _count(value: ir.Value) -> int | None:
    """How many numbers the value holds; None where that is not fixed."""
    sizes = [dim for dim in value.shape or () if isinstance(dim, int)]
    return math.prod(sizes) if value.shape is not None and len(sizes) == len(value.shape) else None
