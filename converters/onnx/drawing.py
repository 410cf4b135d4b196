"""Models that draw random numbers: no two calls of theirs agree, so that equal results are an accident.

ONNX Runtime seeds such nodes by the process and the node's place: two sessions of one process draw the same.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from convertkit.errors import Unsupported
from convertkit.onnx.origin import location
from convertkit.onnx.specs import DRAW

_SAME = "if it draws the same numbers before and after each step"
"""Else the comparison of a step fails, as of any two results that differ."""
_RATIO, _TRAINING = 1, 2
"""The operands of Dropout that say how many values it drops, and whether it does."""


def refusal_of_chance(model: ir.Model) -> Unsupported | None:
    """The refusal of a model that draws random numbers, which names the node; None for any other."""
    found = next(_drawing(model), None)
    if found is None:
        return None
    way = "the random tensor as an input of the model"
    if found.op_type == "Dropout":
        way = "an export in inference mode: this Dropout has, or may get, training_mode"
    return Unsupported(
        "it draws random numbers, so no two calls agree and nothing can be verified",
        subject=f"{found.name or 'node'} ({found.op_type})",
        location=location(found),
        ways_out=(way, f"convertkit export … --allow-unverified to deliver it, not verified, {_SAME}"),
    )


def _drawing(model: ir.Model) -> Iterator[ir.Node]:
    bodies = (model.graph, *(function.graph for function in model.functions.values()))
    return (node for body in bodies for node in body.all_nodes() if not node.domain and _draws(node))


def _draws(node: ir.Node) -> bool:
    if node.op_type != "Dropout":
        return node.op_type in DRAW
    return _may_hold(node, _TRAINING, unstated=False) and _may_hold(node, _RATIO, unstated=True)


def _may_hold(node: ir.Node, place: int, *, unstated: bool) -> bool:
    """Whether an operand is something else than zero or false, or may be, as it is computed or given."""
    value = node.inputs[place] if place < len(node.inputs) else None
    if value is None:
        return unstated
    stored = ir.convenience.get_const_tensor(value)
    return stored is None or bool(stored.numpy().any())
