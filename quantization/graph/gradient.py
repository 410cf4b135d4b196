"""How much a graph's outputs depend on inner values: the chain rule as more nodes of the same graph.

Where an operator has no rule (``gradient_rules``), no value in front of it gets a gradient: half of one, of a skip
connection alone, would be wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest

import onnx_ir as ir

from convertkit.quantization.graph.gradient_rules import parts_of
from convertkit.quantization.graph.gradient_tape import NoRule, Tape
from convertkit.quantization.graph.units import is_float

SEED = "gradient_of/"
"""Names inputs, each with the direction in which an output is looked at."""
GRADIENT = "gradient/"
"""Names outputs, each the gradient with respect to a value."""


def with_gradients(model: ir.Model, seeds: Sequence[str], wanted: Sequence[str]) -> tuple[str, ...]:
    """Let ``model``, which is changed, give the gradients of ``seeds`` with respect to ``wanted``, values by names.

    Each seed becomes an input ``gradient_of/NAME`` of the value's shape.  Returned are those of ``wanted`` that have a
    gradient, which is the output ``gradient/NAME``.
    """
    graph = model.graph
    values = {str(value.name): value for node in graph for value in node.outputs}
    starts = {}
    for name in seeds:
        start = ir.Value(name=SEED + name, shape=values[name].shape, type=values[name].type)
        graph.inputs.append(start)
        starts[values[name]] = start
    return add_gradients(Tape(graph), starts, wanted)


def add_gradients(tape: Tape, starts: Mapping[ir.Value, ir.Value], wanted: Sequence[str]) -> tuple[str, ...]:
    """Let the tape's graph give the gradients with respect to ``wanted``, where those of some values are known.

    Returned are those of ``wanted`` that have a gradient, which is the output ``gradient/NAME``.
    """
    graph = tape.graph
    values = {str(value.name): value for node in graph for value in node.outputs}
    reached = _reached(graph, {values[name] for name in wanted})
    known = {value: [start] for value, start in starts.items()}
    found, lost = _walk_back(tape, tuple(graph), known, reached)
    made = []
    for name in dict.fromkeys(wanted):
        if values[name] in found and values[name] not in lost:
            output = tape.op("Identity", found[values[name]])
            output.name, output.type, output.shape = GRADIENT + name, values[name].type, values[name].shape
            graph.outputs.append(output)
            made.append(name)
    return tuple(made)


def _walk_back(
    tape: Tape, nodes: Sequence[ir.Node], known: dict[ir.Value, list[ir.Value]], reached: set[ir.Value]
) -> tuple[dict[ir.Value, ir.Value], set[ir.Value]]:
    """Gradients, and the values whose gradient would be wrong."""
    found: dict[ir.Value, ir.Value] = {}
    lost: set[ir.Value] = set()
    for node in reversed(nodes):
        inputs = [value for value in node.inputs if value is not None and value in reached]
        for output in node.outputs:
            if output in known:
                found[output] = _total(tape, known[output])
        given = [output for output in node.outputs if output in found]
        if not inputs or not (given or any(output in lost for output in node.outputs)):
            continue
        if any(output in lost for output in node.outputs):
            lost.update(inputs)
            continue
        try:
            parts = parts_of(tape, node, found)
        except NoRule:
            lost.update(inputs)
            continue
        for value, part in zip_longest(node.inputs, parts):
            if value is None or value not in reached:
                continue
            if part is None:
                lost.add(value)
            else:
                known.setdefault(value, []).append(part)
    return found, lost


def _total(tape: Tape, parts: Sequence[ir.Value]) -> ir.Value:
    return parts[0] if len(parts) == 1 else tape.op("Sum", *parts)


def _reached(graph: ir.Graph, wanted: set[ir.Value]) -> set[ir.Value]:
    """The wanted values and the floats that are computed from them."""
    reached = set(wanted)
    for node in graph:
        if any(value in reached for value in node.inputs):
            reached.update(value for value in node.outputs if is_float(value))
    return reached
