"""Operators that take elements one by one, or along an axis, and work on permuted tensors as well."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from convertkit.targets.forms.edits import typed
from convertkit.targets.forms.source import set_source
from convertkit.targets.tflite.annotations import OWN, quantization_of, set_quantization
from convertkit.targets.tflite.passes.layout.perms import Perm, dropped
from convertkit.targets.tflite.passes.layout.plan import (
    Constants,
    Plan,
    attribute,
    constant_of,
    elements,
    integers,
    moved_bytes,
    rank_of,
    set_attribute,
    set_integers,
)


@dataclass(frozen=True, slots=True)
class Elementwise:
    """Operators whose inputs broadcast to the output; ``data`` limits which inputs take part (None: all)."""

    data: tuple[int, ...] | None = None

    def forward(self, node: ir.Node, place: int, perm: Perm) -> Plan | None:
        if rank_of(node.outputs[0]) != len(perm) or (self.data is not None and place not in self.data):
            return None
        return self.backward(node, perm)

    def backward(self, node: ir.Node, perm: Perm) -> Plan | None:
        rank = len(perm)
        places = range(len(node.inputs)) if self.data is None else self.data
        inputs = {place: perm for place in places if rank_of(node.inputs[place]) == rank}
        if any(node.inputs[place] is not None and rank_of(node.inputs[place]) is None for place in places):
            return None
        return Plan(inputs, {place: perm for place, value in enumerate(node.outputs) if rank_of(value) == rank})

    def rewrite(self, node: ir.Node, plan: Plan) -> None:
        """Give inputs of lower rank the missing axes, so that they broadcast along the right ones."""
        perm = plan.outputs[0]
        for place in range(len(node.inputs)) if self.data is None else self.data:
            value = node.inputs[place]
            if value is None or place in plan.inputs or (elements(value) == 1 and rank_of(value) != len(perm)):
                continue
            node.replace_input_with(place, _lifted(node, value, perm))


def _lifted(node: ir.Node, value: ir.Value, perm: Perm) -> ir.Value:
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    missing = len(perm) - (rank_of(value) or 0)
    constants = Constants(graph, len(graph.initializers))
    array = constant_of(value)
    if array is not None:
        return constants.add(array.reshape((1,) * missing + array.shape).transpose(perm))
    made = _dequantized(value, missing, perm, constants)
    if made is not None:
        return made
    axes = constants.add(np.arange(missing))
    lifted = ir.node("Unsqueeze", [value, axes])
    moved = ir.node("Transpose", [lifted.outputs[0]], {"perm": list(perm)})
    shape = [1] * missing + list(value.shape or ())
    for new, sizes in ((lifted, shape), (moved, [shape[axis] for axis in perm])):
        set_source(new, node)
        new.name = f"{node.name}/{new.op_type.lower()}"
        new.outputs[0].name = f"{node.name}/{value.name}/{new.op_type.lower()}"
        typed(new.outputs[0], ir.Shape(sizes), value.dtype)
        graph.insert_before(node, new)
    return moved.outputs[0]


def _dequantized(value: ir.Value, missing: int, perm: Perm, constants: Constants) -> ir.Value | None:
    """The same of constant integers of one scale behind a Dequantize, so that a kernel still takes these."""
    node = value.producer()
    source = node.inputs[0] if node is not None and (node.domain, node.op_type) == (OWN, "Dequantize") else None
    array, params = constant_of(source), None if source is None else quantization_of(source)
    if node is None or array is None or params is None or params.axis is not None:
        return None
    integers = constants.add(array.reshape((1,) * missing + array.shape).transpose(perm))
    set_quantization(integers, params)
    made = ir.node("Dequantize", [integers], domain=OWN, name=f"{node.name}/lifted_{constants.count}")
    set_source(made, node)
    made.outputs[0].name = f"{value.name}/lifted_{constants.count}"
    typed(made.outputs[0], integers.shape, value.dtype)
    assert node.graph is not None
    node.graph.insert_after(node, made)
    return made.outputs[0]


@dataclass(frozen=True, slots=True)
class AlongAxis:
    """Operators with one axis attribute: Softmax, Concat, Split; all data inputs and outputs have one rank.

    ``prefers_last`` says that another axis than the last costs the handler two transposes.
    """

    default: int = -1
    data: tuple[int, ...] | None = None
    prefers_last: bool = False

    def forward(self, node: ir.Node, place: int, perm: Perm) -> Plan | None:
        if self.data is not None and place not in self.data:
            return None
        return self.backward(node, perm)

    def backward(self, node: ir.Node, perm: Perm) -> Plan | None:
        places = range(len(node.inputs)) if self.data is None else self.data
        values = [node.inputs[place] for place in places]
        if any(rank_of(value) != len(perm) for value in (*values, *node.outputs)):
            return None
        axis = attribute(node, "axis", self.default) % len(perm)
        cost = 2 * moved_bytes(node.outputs[0]) if self.prefers_last and perm[-1] != axis else 0
        return Plan(dict.fromkeys(places, perm), dict.fromkeys(range(len(node.outputs)), perm), cost)

    def rewrite(self, node: ir.Node, plan: Plan) -> None:
        perm = plan.outputs[0]
        set_attribute(node, "axis", perm.index(attribute(node, "axis", self.default) % len(perm)))


@dataclass(frozen=True, slots=True)
class Scaled:
    """QuantizeLinear and DequantizeLinear in arithmetic: one scale, or one for each place of an axis; no blocks."""

    along: AlongAxis = AlongAxis(default=1, data=(0,))

    def forward(self, node: ir.Node, place: int, perm: Perm) -> Plan | None:
        return self.backward(node, perm) if place == 0 else None

    def backward(self, node: ir.Node, perm: Perm) -> Plan | None:
        if (rank := rank_of(node.inputs[1])) is None or rank > 1:
            return None
        return self.along.backward(node, perm)

    def rewrite(self, node: ir.Node, plan: Plan) -> None:
        self.along.rewrite(node, plan)


@dataclass(frozen=True, slots=True)
class Reduce:
    """Reductions with a constant axes input (or none: all axes)."""

    def forward(self, node: ir.Node, place: int, perm: Perm) -> Plan | None:
        axes = self._axes(node, len(perm))
        if place != 0 or axes is None:
            return None
        return Plan({0: perm}, {0: perm if self._keeps(node) else dropped(perm, axes)})

    def backward(self, node: ir.Node, perm: Perm) -> Plan | None:
        if self._keeps(node):
            return self.forward(node, 0, perm)
        return None

    def rewrite(self, node: ir.Node, plan: Plan) -> None:
        perm = plan.inputs[0]
        if len(node.inputs) > 1 and (axes := integers(node, 1)):
            set_integers(node, 1, sorted(perm.index(axis % len(perm)) for axis in axes))

    def _keeps(self, node: ir.Node) -> bool:
        return bool(attribute(node, "keepdims", 1))

    def _axes(self, node: ir.Node, rank: int) -> list[int] | None:
        if len(node.inputs) < 2 or node.inputs[1] is None:
            return list(range(rank))
        axes = integers(node, 1)
        return None if axes is None else [axis % rank for axis in axes]


@dataclass(frozen=True, slots=True)
class ArgReduce:
    """ArgMax and ArgMin."""

    def forward(self, node: ir.Node, place: int, perm: Perm) -> Plan | None:
        axis = attribute(node, "axis", 0) % len(perm)
        return Plan({0: perm}, {0: perm if attribute(node, "keepdims", 1) else dropped(perm, [axis])})

    def backward(self, node: ir.Node, perm: Perm) -> Plan | None:
        return self.forward(node, 0, perm) if attribute(node, "keepdims", 1) else None

    def rewrite(self, node: ir.Node, plan: Plan) -> None:
        perm = plan.inputs[0]
        set_attribute(node, "axis", perm.index(attribute(node, "axis", 0) % len(perm)))
