"""If, Loop and Scan as IF and WHILE over subgraphs.

A pass has moved them to our own domain.  These handlers see the node itself: its bodies are lowered
into subgraphs of their own, and what a body takes from outside becomes an input of the subgraph.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from convertkit.errors import UnknownSize, Unsupported
from convertkit.onnx.registry import Registry
from convertkit.targets.forms.free_sizes import follows_sizes
from convertkit.targets.tflite.annotations import OWN
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.handlers.loops import Counted, Loop, carried_shape, may_differ
from convertkit.targets.tflite.handlers.unrolled import MAX_TURNS, unrolled
from convertkit.targets.tflite.lowering import Lowering, Scope, captured_values
from convertkit.targets.tflite.tensor import DYNAMIC, Tensor

control = Registry()


@control.lowers_custom("If", domain=OWN)
def if_(b: Builder, condition: Tensor, *, lowering: Lowering, scope: Scope, node: ir.Node) -> tuple[Tensor, ...]:
    """IF; a condition that is known now leaves only its branch."""
    branches = [node.attributes[name].as_graph() for name in ("then_branch", "else_branch")]
    if condition.constant is not None:
        return lowering.inlined(branches[0 if condition.constant.item() else 1], scope)
    outside = captured_values(branches, lowering, scope)
    indices = []
    for branch, name in zip(branches, ("then", "else"), strict=True):
        inner = {value: fresh(lowering.value(value, scope)) for value in outside}
        indices.append(lowering.subgraph(branch, f"{node.name}/{name}", (), inner))
    outputs = [lowering.program.subgraphs[index].outputs for index in indices]
    results = zip(*(branch.outputs for branch in branches), strict=True)
    lowering.program.sized_late |= any(may_differ(one, other) for one, other in results)
    like = [_common(first, second, node) for first, second in zip(*outputs, strict=True)]
    inputs = [lowering.value(value, scope) for value in outside]
    return b.if_(condition, indices[0], indices[1], inputs, like)


@control.lowers_custom("Loop", domain=OWN)
def loop(
    b: Builder,
    limit: Tensor | None,
    condition: Tensor | None,
    *initial: Tensor,
    lowering: Lowering,
    scope: Scope,
    node: ir.Node,
) -> tuple[Tensor, ...]:
    """WHILE over counter, condition, carried values, collected outputs and what the body captures."""
    body = node.attributes["body"].as_graph()
    counted = Counted(None if limit is None else limit, condition)
    return Loop(b, lowering, scope, node, body).run(counted, initial)


@control.lowers_custom("Scan", domain=OWN)
def scan(b: Builder, *inputs: Tensor, lowering: Lowering, scope: Scope, node: ir.Node) -> tuple[Tensor, ...]:
    """A WHILE that takes one slice of each scanned input in every turn."""
    body = node.attributes["body"].as_graph()
    count = int(node.attributes["num_scan_inputs"].value)
    states, scanned = inputs[: len(inputs) - count], inputs[len(inputs) - count :]
    axes = _integers(node, "scan_input_axes", count)
    backwards = _integers(node, "scan_input_directions", count)
    turned = [
        _front(b, b.reverse(value, (axis % value.rank,)) if back else value, axis % value.rank)
        for value, axis, back in zip(scanned, axes, backwards, strict=True)
    ]
    turns = turned[0].shape[0]
    if turns != DYNAMIC and turns <= MAX_TURNS:
        results = unrolled(b, lowering, scope, body, states, turned)
    else:
        limit = b.size_of(turned[0], 0) if turns == DYNAMIC else b.constant(np.array(turns, np.int64))
        results = Loop(b, lowering, scope, node, body, tuple(turned)).run(Counted(limit, None), states)
    collected = len(results) - len(states)
    out_axes = _integers(node, "scan_output_axes", collected)
    out_backwards = _integers(node, "scan_output_directions", collected)
    stacked = []
    for value, axis, back in zip(results[len(states) :], out_axes, out_backwards, strict=True):
        stacked.append(_back(b, b.reverse(value, (0,)) if back else value, axis % value.rank))
    return (*results[: len(states)], *stacked)


def fresh(tensor: Tensor) -> Tensor:
    """A subgraph input that stands for ``tensor``."""
    return Tensor(tensor.name, tensor.shape, tensor.dtype, None, tensor.quantization)


def _common(first: Tensor, second: Tensor, node: ir.Node) -> Tensor:
    if first.dtype != second.dtype:
        raise Unsupported(f"branches that return {first.dtype} and {second.dtype}")
    if first.rank != second.rank:
        reason = f"branches that return values of rank {first.rank} and of rank {second.rank}"
        condition = node.inputs[0]
        if condition is not None and follows_sizes(condition):
            raise UnknownSize(f"{reason}, chosen by sizes that are dynamic")
        raise Unsupported(f"{reason}: TFLite's IF gives one rank")
    return Tensor(first.name, carried_shape(first.shape, second.shape), first.dtype)


def _integers(node: ir.Node, name: str, count: int) -> Sequence[int]:
    found = node.attributes.get(name)
    numbers = (0,) * count if found is None else tuple(int(item) for item in found.value)
    if len(numbers) != count:
        raise Unsupported(f"{name} holds {len(numbers)} numbers, one for each of {count} is expected")
    return numbers


def _front(b: Builder, x: Tensor, axis: int) -> Tensor:
    return b.transpose(x, (axis, *(other for other in range(x.rank) if other != axis)))


def _back(b: Builder, x: Tensor, axis: int) -> Tensor:
    order = list(range(1, x.rank))
    order.insert(axis, 0)
    return b.transpose(x, order)
