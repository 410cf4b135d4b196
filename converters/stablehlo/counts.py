"""How often a loop turns: a number, or as often as an axis is long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from convertkit.converters.stablehlo.builder import Builder
from convertkit.converters.stablehlo.mlir import text
from convertkit.converters.stablehlo.sizes import Number, numbers
from convertkit.converters.stablehlo.tensor import I32, I64, Operand, Tensor, constant


@dataclass(frozen=True, slots=True)
class Count:
    """A loop of ``trips`` turns (an int64 scalar) while the state at ``place`` counts up from ``first`` by 1.

    ``rows`` is the same number, told by the value that has an axis so long where only the running model knows it.
    """

    place: int
    first: int
    rows: Number
    trips: Tensor
    dtype: ir.DataType

    @property
    def known(self) -> int | None:
        """How many turns there are, where that is known."""
        return None if self.rows.value is not None else self.rows.offset

    def number(self, b: Builder, turn: Tensor) -> Tensor:
        """The state within the turn with this number."""
        moved = turn if self.first == 0 else b.add(turn, self.first)
        last = np.iinfo(np.int32).max if self.known is None else self.first + self.known - 1
        return b.counter(moved, self.dtype, self.first, int(last))

    def final(self, b: Builder) -> Tensor:
        """The state after the last turn."""
        if self.known is None:
            return b.cast(self.trips, self.dtype)
        return constant(np.array(self.first + self.known, self.dtype.numpy()))


def counted(b: Builder, loop: Any, operands: Sequence[Operand]) -> Count | None:
    """``while i < limit`` with ``i = i + 1``, where the limit is known or a size; None for any other loop."""
    condition, body = (region.blocks[0] for region in loop.regions)
    test = yielded(condition)[0].owner
    if not hasattr(test, "opview") or test.name != "stablehlo.compare":
        return None
    arguments = list(condition.arguments)
    if text(test.opview.comparison_direction) != "LT" or test.operands[0] not in arguments:
        return None
    place = arguments.index(test.operands[0])
    start = operands[place]
    step = yielded(body)[place].owner
    if not isinstance(start, Tensor) or start.dtype not in (I32, I64) or start.scalar is None or start.rank:
        return None
    if not hasattr(step, "opview") or step.name != "stablehlo.add" or step.operands[0] != body.arguments[place]:
        return None
    first = int(start.scalar)
    if _known(b, step.operands[1], body, operands) != 1:
        return None
    limit = _known(b, test.operands[1], condition, operands)
    if limit is None:
        return _as_long_as(b, loop, place, test.operands[1], start.dtype) if first == 0 else None
    trips = int(limit - first)
    return Count(place, first, Number(trips), constant(np.array(trips, np.int64)), start.dtype) if trips > 0 else None


def _as_long_as(b: Builder, loop: Any, place: int, limit: Any, dtype: ir.DataType) -> Count | None:
    """A count up to a size that stands outside of the loop, where it may become a recurrent operator."""
    condition, body = (region.blocks[0] for region in loop.regions)
    arguments = list(condition.arguments)
    if limit in arguments:
        handed = arguments.index(limit)
        if not _unchanged(condition, handed):
            return None
        limit = loop.operands[handed]
    if limit.owner in [op.operation for op in condition.operations]:
        return None
    sizes = numbers(limit)
    if sizes is None or len(sizes) != 1 or sizes[0].value is None or sizes[0].offset:
        return None
    if not b.regions.collects(loop) or not has_products(body):
        return None
    found = b.regions.known(limit)
    assert isinstance(found, Tensor)
    return Count(place, 0, sizes[0], b.cast(b.reshape(found, ()), I64), dtype)


def has_products(body: Any) -> bool:
    """Whether a block multiplies matrices, as recurrent cells do."""
    return any(each.operation.name == "stablehlo.dot_general" for each in body.operations)


def _known(b: Builder, value: Any, block: Any, operands: Sequence[Operand]) -> float | None:
    """The number that a scalar of a block is in every pass, None where it is none."""
    arguments = list(block.arguments)
    if value in arguments:
        place = arguments.index(value)
        # The limit may be handed from pass to pass unchanged.
        tensor: Operand | None = operands[place] if _unchanged(block, place) else None
    elif value.owner in [op.operation for op in block.operations] and value.owner.name != "stablehlo.constant":
        return None
    else:
        tensor = b.regions.value(b, block, operands, value)
    return tensor.scalar if isinstance(tensor, Tensor) and not tensor.rank else None


def _unchanged(block: Any, place: int) -> bool:
    """Whether the loop that ``block`` belongs to keeps the state at ``place``."""
    body = block.owner.regions[1].blocks[0]
    return bool(yielded(body)[place] == body.arguments[place])


def yielded(block: Any) -> list[Any]:
    """What a block ends with."""
    return list(list(block.operations)[-1].operation.operands)
