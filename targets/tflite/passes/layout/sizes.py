"""Shape and Size of a permuted tensor: its sizes are put in order, not its elements."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from convertkit.targets.forms.edits import typed
from convertkit.targets.forms.source import set_source
from convertkit.targets.tflite.passes.layout.perms import Perm
from convertkit.targets.tflite.passes.layout.plan import Constants, Plan


@dataclass(frozen=True, slots=True)
class Sizes:
    """Any order will do for the input; the output has none."""

    def forward(self, node: ir.Node, place: int, perm: Perm) -> Plan | None:
        return Plan({0: perm}, {})

    def backward(self, node: ir.Node, perm: Perm) -> Plan | None:
        return None

    def rewrite(self, node: ir.Node, plan: Plan) -> None:
        """``Shape(x)`` becomes ``Gather(Shape(x), where the source's axes lie)``; a Size stays one."""
        if node.op_type == "Shape":
            _gathered(node, plan.inputs[0])


def _gathered(node: ir.Node, perm: Perm) -> None:
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    start, end = (node.attributes.get(name) for name in ("start", "end"))
    named = range(len(perm))[0 if start is None else start.as_int() : len(perm) if end is None else end.as_int()]
    shape = ir.node("Shape", [node.inputs[0]], name=f"{node.name}/stored")
    set_source(shape, node)
    shape.outputs[0].name = f"{node.name}/stored"
    typed(shape.outputs[0], ir.Shape([len(perm)]), ir.DataType.INT64)
    graph.insert_before(node, shape)
    places = Constants(graph, len(graph.initializers)).add(np.array([perm.index(axis) for axis in named], np.int64))
    node.op_type = "Gather"
    node.attributes.clear()
    node.attributes["axis"] = ir.AttrInt64("axis", 0)
    node.resize_inputs(2)
    node.replace_input_with(0, shape.outputs[0])
    node.replace_input_with(1, places)
