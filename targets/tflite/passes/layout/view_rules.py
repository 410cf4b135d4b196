"""Operators that give the same elements other places, and permuted tensors, too."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from convertkit.targets.tflite.passes.layout.perms import Perm, dropped, identity, inverse, widened
from convertkit.targets.tflite.passes.layout.plan import (
    Plan,
    integers,
    rank_of,
    set_attribute,
    set_integers,
    sizes_of,
)
from convertkit.targets.tflite.passes.layout.regroup import carried


@dataclass(frozen=True, slots=True)
class Squeeze:
    """Squeeze of constant axes."""

    def forward(self, node: ir.Node, place: int, perm: Perm) -> Plan | None:
        axes = self._axes(node, len(perm))
        return None if axes is None or place != 0 else Plan({0: perm}, {0: dropped(perm, axes)})

    def backward(self, node: ir.Node, perm: Perm) -> Plan | None:
        rank = rank_of(node.inputs[0])
        axes = None if rank is None else self._axes(node, rank)
        return None if axes is None else Plan({0: widened(perm, axes)}, {0: perm})

    def rewrite(self, node: ir.Node, plan: Plan) -> None:
        perm = plan.inputs[0]
        axes = self._axes(node, len(perm)) or []
        set_integers(node, 1, sorted(perm.index(axis) for axis in axes))

    def _axes(self, node: ir.Node, rank: int) -> list[int] | None:
        axes = integers(node, 1)
        return None if axes is None else [axis % rank for axis in axes]


@dataclass(frozen=True, slots=True)
class Unsqueeze:
    """Unsqueeze of constant axes."""

    def forward(self, node: ir.Node, place: int, perm: Perm) -> Plan | None:
        axes = self._axes(node)
        return None if axes is None or place != 0 else Plan({0: perm}, {0: widened(perm, axes)})

    def backward(self, node: ir.Node, perm: Perm) -> Plan | None:
        axes = self._axes(node)
        return None if axes is None else Plan({0: dropped(perm, axes)}, {0: perm})

    def rewrite(self, node: ir.Node, plan: Plan) -> None:
        perm = plan.outputs[0]
        set_integers(node, 1, sorted(perm.index(axis) for axis in self._axes(node) or []))

    def _axes(self, node: ir.Node) -> list[int] | None:
        axes, rank = integers(node, 1), rank_of(node.outputs[0])
        return None if axes is None or rank is None else [axis % rank for axis in axes]


@dataclass(frozen=True, slots=True)
class Reshape:
    """Reshape and Flatten whose groups of axes move as they are; sizes come from shape inference."""

    def forward(self, node: ir.Node, place: int, perm: Perm) -> Plan | None:
        sizes = self._sizes(node)
        if place != 0 or sizes is None:
            return None
        result = carried(*sizes, perm)
        return None if result is None else Plan({0: perm}, {0: result})

    def backward(self, node: ir.Node, perm: Perm) -> Plan | None:
        sizes = self._sizes(node)
        if sizes is None:
            return None
        result = carried(sizes[1], sizes[0], perm)
        # Axes of size 1 have several places; only one that leads back here is right.
        if result is None or carried(*sizes, result) != perm:
            return None
        return Plan({0: result}, {0: perm})

    def rewrite(self, node: ir.Node, plan: Plan) -> None:
        sizes = self._sizes(node)
        assert sizes is not None
        stored = [sizes[1][axis] for axis in plan.outputs[0]]
        node.op_type = "Reshape"
        node.attributes.pop("axis", None)
        node.attributes.pop("allowzero", None)
        set_integers(node, 1, [size if isinstance(size, int) else -1 for size in stored])

    def _sizes(self, node: ir.Node) -> tuple[tuple[int | str, ...], tuple[int | str, ...]] | None:
        if node.inputs[0] is None:
            return None
        before, after = sizes_of(node.inputs[0]), sizes_of(node.outputs[0])
        if before is None or after is None or 0 in before or sum(isinstance(size, str) for size in after) > 1:
            return None
        return before, after


@dataclass(frozen=True, slots=True)
class Transpose:
    """A transpose of the source: it vanishes where the stored order can stay."""

    def forward(self, node: ir.Node, place: int, perm: Perm) -> Plan | None:
        back = inverse(source_perm(node, len(perm)))
        return Plan({0: perm}, {0: tuple(back[axis] for axis in perm)})

    def backward(self, node: ir.Node, perm: Perm) -> Plan | None:
        moves = source_perm(node, len(perm))
        return Plan({0: tuple(moves[axis] for axis in perm)}, {0: perm})

    def rewrite(self, node: ir.Node, plan: Plan) -> None:
        have, want = plan.inputs[0], plan.outputs[0]
        moves = source_perm(node, len(have))
        place = inverse(have)
        set_attribute(node, "perm", [place[moves[axis]] for axis in want])


def source_perm(node: ir.Node, rank: int) -> Perm:
    """The ``perm`` of a Transpose, by default backwards."""
    found = node.attributes.get("perm")
    return identity(rank)[::-1] if found is None else tuple(int(axis) for axis in found.value)


@dataclass(frozen=True, slots=True)
class Slice:
    """Slice with constant starts, ends, axes and steps."""

    def forward(self, node: ir.Node, place: int, perm: Perm) -> Plan | None:
        if place != 0 or any(integers(node, at) is None for at in range(1, len(node.inputs)) if node.inputs[at]):
            return None
        return Plan({0: perm}, {0: perm})

    def backward(self, node: ir.Node, perm: Perm) -> Plan | None:
        return self.forward(node, 0, perm)

    def rewrite(self, node: ir.Node, plan: Plan) -> None:
        perm = plan.inputs[0]
        starts = integers(node, 1) or []
        axes = (integers(node, 3) if len(node.inputs) > 3 else None) or list(range(len(starts)))
        set_integers(node, 3, [perm.index(axis % len(perm)) for axis in axes])
