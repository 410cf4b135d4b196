"""Sizes that torch has recorded behind a recurrent operator over a free length.

torch passes shapes through LSTM, GRU and RNN step by step, so what it records behind them has the example's number of
steps as a number, while the operator of ONNX takes any.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from convertkit.converters.pytorch.interface.leaves import Leaf

_RECURRENT = frozenset({"LSTM", "GRU", "RNN"})


def forget_steps(model: ir.Model, leaves: Sequence[Leaf]) -> None:
    """Leave those sizes to be inferred again, in place, where more than the batch is free."""
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
