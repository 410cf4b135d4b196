"""Operators with something for each axis, or for the last ones, that work on permuted tensors as well."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from convertkit.targets.tflite.passes.layout.perms import Perm, dropped
from convertkit.targets.tflite.passes.layout.plan import (
    Plan,
    attribute,
    integers,
    rank_of,
    set_attribute,
    set_integers,
)


@dataclass(frozen=True, slots=True)
class PerAxisInput:
    """Operators with one constant number for each axis: Pad (two), Tile."""

    def forward(self, node: ir.Node, place: int, perm: Perm) -> Plan | None:
        numbers = integers(node, 1)
        axes = len(node.inputs) > 3 and node.inputs[3] is not None
        if place != 0 or numbers is None or axes or len(numbers) % len(perm):
            return None
        return Plan({0: perm}, {0: perm})

    def backward(self, node: ir.Node, perm: Perm) -> Plan | None:
        return self.forward(node, 0, perm)

    def rewrite(self, node: ir.Node, plan: Plan) -> None:
        perm = plan.inputs[0]
        numbers = np.array(integers(node, 1)).reshape(-1, len(perm))
        set_integers(node, 1, [int(number) for number in numbers[:, list(perm)].reshape(-1)])


@dataclass(frozen=True, slots=True)
class LastAxes:
    """Operators that work on the last axes and batch over the others: MatMul by a constant, LayerNormalization."""

    def forward(self, node: ir.Node, place: int, perm: Perm) -> Plan | None:
        rank = len(perm)
        first = self._first(node, rank)
        if place != 0 or first is None or perm[first:] != tuple(range(first, rank)):
            return None
        return Plan({0: perm}, {at: perm for at, value in enumerate(node.outputs) if rank_of(value) == rank})

    def backward(self, node: ir.Node, perm: Perm) -> Plan | None:
        return self.forward(node, 0, perm) if rank_of(node.inputs[0]) == len(perm) else None

    def rewrite(self, node: ir.Node, plan: Plan) -> None:
        """Nothing changes."""

    def _first(self, node: ir.Node, rank: int) -> int | None:
        if node.op_type not in ("MatMul", "Dense"):
            return attribute(node, "axis", -1) % rank
        return rank - 1 if rank_of(node.inputs[1]) == 2 and rank > 2 else None


@dataclass(frozen=True, slots=True)
class Gather:
    """Gather by a constant scalar or vector of indices."""

    def forward(self, node: ir.Node, place: int, perm: Perm) -> Plan | None:
        axis, rank = attribute(node, "axis", 0) % len(perm), rank_of(node.inputs[1])
        if place != 0 or rank not in (0, 1):
            return None
        return Plan({0: perm}, {0: perm if rank == 1 else dropped(perm, [axis])})

    def backward(self, node: ir.Node, perm: Perm) -> Plan | None:
        return self.forward(node, 0, perm) if rank_of(node.inputs[1]) == 1 else None

    def rewrite(self, node: ir.Node, plan: Plan) -> None:
        perm = plan.inputs[0]
        axis = attribute(node, "axis", 0) % len(perm)
        set_attribute(node, "axis", perm.index(axis))
