"""Sizes that torch has recorded and that are others when the model runs.

torch passes shapes through LSTM, GRU and RNN step by step, so what it records behind them has the example's number of
steps as a number, while the operator of ONNX takes any.  And what a loop carries has the shape there that it begins
with, though a turn may append to it: a list that begins empty would count as empty in every turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx_ir as ir

from convertkit.converters.pytorch.model.leaves import Leaf

_RECURRENT = frozenset({"LSTM", "GRU", "RNN"})


def forget_steps(model: ir.Model, leaves: Sequence[Leaf]) -> None:
    """Leave those sizes to be inferred again, in place, where more than the batch is dynamic."""
    names = {dim for leaf in leaves for dim in leaf.shape if isinstance(dim, str)}
    if names == {dim for leaf in leaves for dim in leaf.shape[:1] if isinstance(dim, str)} and len(names) < 2:
        return
    for node in model.graph:
        if node.op_type not in _RECURRENT or node.domain:
            continue
        behind = _behind(node)
        recorded = next((value.shape for value in behind if value.shape is not None and len(value.shape) == 3), None)
        if recorded is None:
            continue
        steps = {dim for dim in tuple(recorded)[:-1] if isinstance(dim, int)}
        for value in behind:
            if value.shape is not None:
                value.shape = ir.Shape([None if dim in steps else dim for dim in tuple(value.shape)])


def _behind(node: ir.Node) -> list[ir.Value]:
    """All values that depend on the node's sequence, nearest first."""
    found: dict[ir.Value, None] = {}
    waiting = [node.outputs[0]]
    while waiting:
        value = waiting.pop(0)
        if value not in found:
            found[value] = None
            waiting += [result for user, _ in value.uses() for result in user.outputs]
    return list(found)


def forget_growth(model: ir.Model) -> None:
    """Leave the sizes to be found at run time, in place, of what the turns of a loop append to."""
    for node in model.graph.all_nodes():
        if node.op_type != "Loop" or node.domain:
            continue
        body = node.attributes["body"].as_graph()
        for carried, result in zip(body.inputs[2:], body.outputs[1:], strict=False):
            axes = set(_appended(result, carried))
            if axes and carried.shape is not None:
                dims = tuple(carried.shape)
                places = {axis % len(dims) for axis in axes}
                carried.shape = ir.Shape([None if place in places else dim for place, dim in enumerate(dims)])


def _appended(result: ir.Value, carried: ir.Value) -> Iterator[int]:
    """Axes along which ``result`` is ``carried`` with more behind or in front of it, in some branch."""
    node = result.producer()
    if node is None or node.domain:
        return
    if node.op_type == "Identity" and node.inputs[0] is not None:
        yield from _appended(node.inputs[0], carried)
    elif node.op_type == "Concat" and carried in node.inputs:
        yield node.attributes["axis"].as_int()
    elif node.op_type == "If":
        place = node.outputs.index(result)
        for name in ("then_branch", "else_branch"):
            yield from _appended(node.attributes[name].as_graph().outputs[place], carried)
