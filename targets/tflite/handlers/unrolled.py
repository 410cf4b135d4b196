"""Short loops of known length, turn after turn: no WHILE, and every shape is known."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.handlers.elementary import as_accepted
from convertkit.targets.tflite.handlers.shapes import cut
from convertkit.targets.tflite.lowering import Lowering, Scope
from convertkit.targets.tflite.tensor import Tensor

MAX_TURNS = 16
"""Longer loops are WHILEs: the file would grow with every turn."""


def unrolled(
    b: Builder, lowering: Lowering, scope: Scope, body: ir.Graph, states: Sequence[Tensor], scanned: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """A Scan over the first axis of ``scanned``: the last states, then what each turn returned, stacked."""
    rows: list[tuple[Tensor, ...]] = []
    state = tuple(states)
    for turn in range(scanned[0].shape[0]):
        slices = [row(b, value, turn) for value in scanned]
        scope.values.update(zip(body.inputs, (*state, *slices), strict=True))
        results = lowering.inlined(body, scope)
        state, collected = results[: len(states)], results[len(states) :]
        rows.append(collected)
    return (*state, *(stacked(b, values) for values in zip(*rows, strict=True)))


def row(b: Builder, x: Tensor, place: int) -> Tensor:
    """``x[place]``."""
    part = cut(b, x, [slice(place, place + 1)] + [slice(None)] * (x.rank - 1))
    return b.squeeze(part, (0,))


def stacked(b: Builder, rows: Sequence[Tensor]) -> Tensor:
    """Tensors of one shape along a new first axis."""
    wide = as_accepted(b, "PACK", *rows)
    return b.cast(b.pack(wide, 0), rows[0].dtype)
