"""Loops that run as often as an axis is long, which only the running model knows, and what numbers their turns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from convertkit.converters.stablehlo.builder import Builder, Turn
from convertkit.converters.stablehlo.mlir import shape_of, text
from convertkit.converters.stablehlo.recognise.turns import ROWS
from convertkit.converters.stablehlo.sizes import Number, numbers, operator
from convertkit.converters.stablehlo.tensor import Tensor, constant


@dataclass(frozen=True, slots=True)
class _Sum:
    """``sign`` times a counter, and a size of an axis, and a number; each may be absent."""

    counter: Any
    sign: int
    size: Number | None
    offset: int


def row_of_turn(b: Builder, value: Any, whole: Number) -> tuple[Tensor, Turn, bool] | None:
    """The index of the row that is the number of the turn of a loop over all ``whole`` rows, as int64 of shape [1].

    With the loop's turn, and whether it counts from the last row; None for any other ``value`` (a scalar of the
    module), which may lie outside.
    """
    place = _sum(value, b.regions.turns) if b.regions.turns else None
    turn = None if place is None else b.regions.turns.get(place.counter)
    if place is None or turn is None or turn.rows != whole:
        return None
    if (place.sign, place.size, place.offset) == (1, None, 0):
        return b.reshape(turn.number, (1,)), turn, False
    if (place.sign, place.size, place.offset) == (-1, whole, -1):
        last = b.sub(turn.trips, constant(np.array(1, np.int64)))
        return b.reshape(b.sub(last, turn.number), (1,)), turn, True
    return None


def is_last_row(value: Any, whole: Number) -> bool:
    """Whether an index (a scalar of the module) is one less than there are rows."""
    place = _sum(value, {})
    return place is not None and (place.counter, place.size, place.offset) == (None, whole, -1)


def gathered(b: Builder, x: Tensor, axis: int, row: tuple[Tensor, Turn, bool]) -> Tensor:
    """That row of ``x``, marked for recognition."""
    index, turn, backward = row
    result = b.gather(x, index, axis)
    node = result.core.producer() if isinstance(result.core, ir.Value) else None
    if node is not None:
        node.meta[ROWS] = (turn.number.core, backward)
    return result


def _sum(value: Any, turns: Mapping[Any, Turn]) -> _Sum | None:
    if value in turns:
        return _Sum(value, 1, None, 0)
    name = operator(value)
    if name in ("reshape", "convert", "broadcast_in_dim") and len(shape_of(value.type)) <= 1:
        return _sum(value.owner.operands[0], turns)
    if name == "select" and _is_negative_counter(value.owner.operands[0], turns):
        return _sum(value.owner.operands[2], turns)
    if name in ("add", "subtract"):
        left, right = (_sum(each, turns) for each in value.owner.operands)
        return None if left is None or right is None else _added(left, right, 1 if name == "add" else -1)
    known = numbers(value)
    if known is None or len(known) != 1:
        return None
    (number,) = known
    size = None if number.value is None else Number(0, number.value, number.axis)
    return _Sum(None, 0, size, number.offset)


def _is_negative_counter(value: Any, turns: Mapping[Any, Turn]) -> bool:
    """Whether a condition asks if the number of a turn is less than 0, as Python's indices are; it never is."""
    if operator(value) != "compare" or text(value.owner.attributes["comparison_direction"]) != "LT":
        return False
    counter, zero = value.owner.operands
    return counter in turns and numbers(zero) == (Number(0),)


def _added(left: _Sum, right: _Sum, sign: int) -> _Sum | None:
    """Their sum or difference, None where both have the same part or a size is taken away."""
    if (left.counter is not None and right.counter is not None) or (left.size is not None and right.size is not None):
        return None
    if right.size is not None and sign < 0:
        return None
    return _Sum(
        left.counter if left.counter is not None else right.counter,
        left.sign if left.counter is not None else sign * right.sign,
        left.size or right.size,
        left.offset + sign * right.offset,
    )
