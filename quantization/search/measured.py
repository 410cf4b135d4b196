"""Where a trial measures: at the float outputs, or at what integer outputs are decided from.

A softmax or sigmoid squashes errors, so they are measured in front of it.  An ArgMax leaves none at all, TopK those of
scores in their order alone, and behind a suppression rows change places: what is chosen is measured at the values
that the choice is made from.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from convertkit.errors import Unsupported
from convertkit.quantization.graph.units import is_constant

_SQUASHES = frozenset({"Softmax", "LogSoftmax", "Sigmoid"})


_CHOOSES = frozenset({"ArgMax", "ArgMin", "NonMaxSuppression", "TopK"})
_PICKS = frozenset({
    "Add", "Cast", "Concat", "Div", "Equal", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Greater",
    "Identity", "Less", "Mod", "Mul", "ReduceSum", "Reshape", "ScatterElements", "ScatterND", "Slice", "Squeeze", "Sub",
    "Tile", "Transpose", "Unsqueeze", "Where",
})  # fmt: skip
"""Operators that only pick, scale and move what was chosen: behind any other the choice is a part of the model."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What is measured for ``name``: input ``place`` of a node; the value itself, too, where it leaves the model."""

    name: str
    node: str
    place: int
    leaves: bool


def readings(graph: ir.Graph) -> tuple[Reading, ...]:
    """What is compared of a float model; ``Unsupported`` where no output depends on floats."""
    chosen = _chosen(graph)
    floats = [value for value in graph.outputs if is_real(value) and value not in chosen]
    found = [Reading(str(value.name), _squash(value), 0, leaves=True) for value in floats]
    if not floats or any(value in chosen for value in graph.outputs):
        ends = [value for value in graph.outputs if value in chosen or not (floats or is_real(value))]
        found += [reading for value in ends for reading in _decided_from(value, chosen)]
    if not found:
        raise Unsupported("no output is computed from floating point numbers: nothing is to be quantized")
    return tuple(dict.fromkeys(found))


def _chosen(graph: ir.Graph) -> frozenset[ir.Value]:
    """What operators choose by real numbers, and what is only picked by that."""
    found: set[ir.Value] = set()
    for node in graph:
        first = node.inputs[0] if node.inputs else None
        chooses = node.op_type in _CHOOSES and first is not None and is_real(first)
        picks = node.op_type in _PICKS and any(value in found for value in node.inputs if value is not None)
        if not node.domain and (chooses or picks):
            found.update(node.outputs)
    return frozenset(found)


def is_real(value: ir.Value) -> bool:
    """Whether a value holds real numbers, of any width."""
    return value.dtype is None or value.dtype.is_floating_point()


def _squash(output: ir.Value) -> str:
    """The name of the softmax or sigmoid that makes an output, empty where there is none."""
    node = output.producer()
    return str(node.name) if node is not None and node.op_type in _SQUASHES else ""


def _decided_from(output: ir.Value, chosen: frozenset[ir.Value]) -> list[Reading]:
    """The nearest float values that an output depends on and that no choice has gone before."""
    found: list[Reading] = []
    seen: set[ir.Value] = set()
    waiting = [output]
    while waiting:
        node = waiting.pop().producer()
        for place, value in enumerate(() if node is None else node.inputs):
            if node is None or value is None or value in seen or is_constant(value) or value.is_graph_input():
                continue
            seen.add(value)
            maker = value.producer()
            if maker is not None and maker.op_type == "ConstantOfShape":
                continue
            if is_real(value) and value not in chosen:
                found.append(
                    Reading(str(value.name), _squash(value) or str(node.name), _place(value, place), leaves=False)
                )
            else:
                waiting.append(value)
    return found


def _place(value: ir.Value, place: int) -> int:
    return 0 if _squash(value) else place
