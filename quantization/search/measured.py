"""Where a trial measures: at the float outputs, or at what integer outputs are decided from.

A softmax or sigmoid squashes errors, so they are measured in front of it; an ArgMax or TopK leaves none at all, so a
model that delivers only labels is measured at the scores that they are taken from.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from convertkit.errors import Unsupported
from convertkit.quantization.graph.units import is_constant

_SQUASHES = frozenset({"Softmax", "LogSoftmax", "Sigmoid"})


@dataclass(frozen=True, slots=True)
class Reading:
    """What is measured for ``name``: input ``place`` of a node; the value itself, too, where it leaves the model."""

    name: str
    node: str
    place: int
    leaves: bool


def readings(graph: ir.Graph) -> tuple[Reading, ...]:
    """What is compared of a float model; ``Unsupported`` where no output depends on floats."""
    floats = [value for value in graph.outputs if is_real(value)]
    if floats:
        return tuple(Reading(str(value.name), _squash(value), 0, leaves=True) for value in floats)
    found = [reading for value in graph.outputs for reading in _decided_from(value)]
    if not found:
        raise Unsupported("no output is computed from floating point numbers: nothing is to be quantized")
    return tuple(dict.fromkeys(found))


def is_real(value: ir.Value) -> bool:
    """Whether a value holds real numbers, of any width."""
    return value.dtype is None or value.dtype.is_floating_point()


def _squash(output: ir.Value) -> str:
    """The name of the softmax or sigmoid that makes an output, empty where there is none."""
    node = output.producer()
    return str(node.name) if node is not None and node.op_type in _SQUASHES else ""


def _decided_from(output: ir.Value) -> list[Reading]:
    """The nearest float values that an integer output depends on."""
    found: list[Reading] = []
    seen: set[ir.Value] = set()
    waiting = [output]
    while waiting:
        node = waiting.pop().producer()
        for place, value in enumerate(() if node is None else node.inputs):
            if node is None or value is None or value in seen or is_constant(value) or value.is_graph_input():
                continue
            seen.add(value)
            if is_real(value):
                found.append(
                    Reading(str(value.name), _squash(value) or str(node.name), _place(value, place), leaves=False)
                )
            else:
                waiting.append(value)
    return found


def _place(value: ir.Value, place: int) -> int:
    return 0 if _squash(value) else place
