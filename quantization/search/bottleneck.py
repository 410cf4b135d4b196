"""Autoencoders, by their structure: an output like an input, and all between passes through far fewer numbers."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from convertkit.quantization.graph.sizes import elements, sizes
from convertkit.quantization.graph.units import is_float

_NARROW = 4
"""A bottleneck has at most the input's size divided by this."""


def reconstructions(graph: ir.Graph) -> Mapping[str, str]:
    """Outputs of an input's shape that depend on it through a bottleneck alone, each with that input."""
    found: dict[str, str] = {}
    for given in graph.inputs:
        alike = [value for value in graph.outputs if is_float(value) and sizes(value) == sizes(given)]
        if is_float(given) and alike and _is_narrowed(graph, given):
            found.update({str(value.name): str(given.name) for value in alike})
    return found


def _is_narrowed(graph: ir.Graph, given: ir.Value) -> bool:
    """Whether at some node, in graph order, one small value is all that is left of an input."""
    waiting = {given: _uses(given)}
    for node in graph:
        read = [value for value in dict.fromkeys(node.inputs) if value is not None and value in waiting]
        if not read:
            continue
        waiting.update({value: _uses(value) for value in node.outputs})
        for value in read:
            waiting[value] -= sum(other is value for other in node.inputs)
        waiting = {value: left for value, left in waiting.items() if left or value.is_graph_output()}
        if len(waiting) == 1 and elements(next(iter(waiting))) * _NARROW <= elements(given):
            return True
    return False


def _uses(value: ir.Value) -> int:
    return len(tuple(value.uses()))
