"""Scan as the steps that it takes: its body once for each, which MIL's units run faster than a loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from convertkit.errors import Unsupported
from convertkit.targets.coreml.builder import Builder
from convertkit.targets.coreml.tensor import Tensor, constant

if TYPE_CHECKING:
    from convertkit.targets.coreml.lowering import Lowering

_MOST_NODES = 20_000
"""Steps times nodes of the body."""


def scan(lowering: Lowering, builder: Builder, node: ir.Node) -> tuple[Tensor, ...]:
    """Last states, then what each step gives, stacked.  Source: ONNX operators, Scan-11."""
    body = node.attributes["body"].as_graph()
    count = int(node.attributes["num_scan_inputs"].value)
    inputs = [lowering.value(value) for value in node.inputs if value is not None]
    states, rows = inputs[: len(inputs) - count], inputs[len(inputs) - count :]
    axes, backwards = _told(node, "scan_input_axes", count), _told(node, "scan_input_directions", count)
    steps = rows[0].size(axes[0])
    if steps * len(body) > _MOST_NODES:
        raise Unsupported(f"{steps} steps of {len(body)} nodes: Core ML would get each of them")
    results: list[list[Tensor]] = [[] for _ in range(len(body.outputs) - len(states))]
    for step in range(steps):
        for value, state in zip(body.inputs, states, strict=False):
            lowering.bind(value, state)
        for place, value in enumerate(body.inputs[len(states) :]):
            at = steps - 1 - step if backwards[place] else step
            lowering.bind(value, _row(builder, rows[place], axes[place], at))
        lowering.run(body)
        found = [lowering.value(value) for value in body.outputs]
        states = found[: len(states)]
        for each, result in zip(found[len(states) :], results, strict=True):
            result.append(each)
    axes, backwards = _told(node, "scan_output_axes", len(results)), _told(node, "scan_output_directions", len(results))
    stacked = [
        _stacked(builder, each[::-1] if back else each, axis)
        for each, axis, back in zip(results, axes, backwards, strict=True)
    ]
    return (*states, *stacked)


def _told(node: ir.Node, name: str, count: int) -> list[int]:
    """An attribute with a number for each input or output, 0 where it is not given."""
    attribute = node.attributes.get(name)
    return [0] * count if attribute is None else [int(each) for each in attribute.value]


def _row(b: Builder, x: Tensor, axis: int, at: int) -> Tensor:
    if x.array is not None:
        return constant(np.take(x.array, at, axis))
    axis %= x.rank
    begin = tuple(at if each == axis else 0 for each in range(x.rank))
    end = tuple(at + 1 if each == axis else 0 for each in range(x.rank))
    mask = tuple(each != axis for each in range(x.rank))
    part = b.op("slice_by_index", x=x, begin=begin, end=end, end_mask=mask)
    return b.op("squeeze", x=part, axes=(axis,))


def _stacked(b: Builder, parts: list[Tensor], axis: int) -> Tensor:
    at = axis % (parts[0].rank + 1)
    return b.concat([b.op("expand_dims", x=each, axes=(at,)) for each in parts], at)
