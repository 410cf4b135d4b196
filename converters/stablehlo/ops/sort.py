"""``sort`` with any comparator that orders by keys.

A comparator is accepted when its expression says: compare a function of the one side with the same
function of the other, possibly falling back to a next key on ties.  The functions are applied to the
whole operands; then one stable ``TopK`` per key, least significant first, gives the permutation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxlib.mlir.dialects import stablehlo as hlo

from convertkit.converters.stablehlo.builder import Builder
from convertkit.converters.stablehlo.mlir import integer
from convertkit.converters.stablehlo.ops.arithmetic import sign_bit
from convertkit.converters.stablehlo.ops.regions import Expression, expressions
from convertkit.converters.stablehlo.registry import Handlers
from convertkit.converters.stablehlo.tensor import I16, I32, I64, U8, Complex, Operand, Tensor, bits, is_float
from convertkit.errors import Unsupported

sorting = Handlers()

_SIGNED_OF_WIDTH = {16: I16, 32: I32, 64: I64}


@dataclass(frozen=True, slots=True)
class Key:
    """One criterion: an expression of one side's arguments, and how it is compared."""

    expression: Expression
    descending: bool
    total: bool


def sort(b: Builder, op: hlo.SortOp, *operands: Operand) -> tuple[Operand, ...]:
    """All operands in the order that the comparator gives; equal elements keep theirs."""
    axis = integer(op.dimension) % operands[0].rank
    block = op.regions[0].blocks[0]
    keys = sort_keys(block, len(operands))
    if keys is None:
        raise Unsupported("a sort comparator that is not recognised as an order by keys")
    columns: list[tuple[Tensor, bool]] = []
    for key in keys:
        column = evaluated(b, block, key.expression, operands)
        columns += _columns(b, column, key)
    order: Tensor | None = None
    for column, descending in reversed(columns):
        order = _refined(b, column, descending, axis, order)
    assert order is not None
    return tuple(_permuted(b, each, order, axis) for each in operands)


@sorting.translates
def real_sort(b: Builder, op: hlo.SortOp, *operands: Operand) -> tuple[Operand, ...]:
    return sort(b, op, *operands)


@sorting.complex
def complex_sort(b: Builder, op: hlo.SortOp, *operands: Operand) -> tuple[Operand, ...]:
    return sort(b, op, *operands)


def _columns(b: Builder, column: Tensor, key: Key) -> list[tuple[Tensor, bool]]:
    """A key as columns that TopK orders right: NaN as a column of its own, signed zeros apart."""
    if not is_float(column.dtype):
        return [(column, key.descending)]
    if key.total and key.expression[0] == "arg":
        return [(ordered_bits(b, column), key.descending)]
    # Comparators that put another NaN in place of each one, as JAX's do, need no bits.
    missing = b.is_nan(column)
    plain = b.where(missing, float("inf"), column)
    columns = [(b.cast(missing, U8), key.descending), (plain, key.descending)]
    if key.total:
        columns.append((b.cast(sign_bit(b, plain), U8), not key.descending))
    return columns


def _refined(b: Builder, column: Tensor, descending: bool, axis: int, order: Tensor | None) -> Tensor:
    if order is not None:
        column = b.take_along(column, order, axis)
    size = b.size(column, axis)
    _, places = b.top_k(column, size, axis, descending)
    return places if order is None else b.take_along(order, places, axis)


def _permuted(b: Builder, x: Operand, order: Tensor, axis: int) -> Operand:
    if isinstance(x, Complex):
        return Complex(b.take_along(x.re, order, axis), b.take_along(x.im, order, axis))
    return b.take_along(x, order, axis)


def greatest_first(b: Builder, x: Tensor, count: int, *, total: bool = True) -> tuple[Tensor, Tensor]:
    """The ``count`` greatest of the last axis and their places, equal ones in order.

    Floats are in total order: -NaN, -∞, …, -0, +0, …, +∞, +NaN; without ``total`` as numbers, so that -0 is +0.
    """
    axis = x.rank - 1
    if not total or not is_float(x.dtype):
        return b.top_k(x, count, axis, True)
    _, places = b.top_k(ordered_bits(b, b.full(x)), count, axis, True)
    return b.take_along(x, places, axis), places


def ordered_bits(b: Builder, x: Tensor) -> Tensor:
    """Signed integers in the total order of floats: the bits, all but the sign turned over below zero."""
    whole = _SIGNED_OF_WIDTH[bits(x.dtype)]
    raw = b.bitcast(x, whole)
    return b.where(b.less(raw, 0), b.bit_xor(raw, int(np.iinfo(whole.numpy()).max)), raw)


# --- reading the comparator ------------------------------------------------------------------------


def sort_keys(block: Any, count: int) -> tuple[Key, ...] | None:
    """The keys of a comparator over ``count`` operands, most significant first; None where it is none."""
    found = expressions(block)
    return _keys(found[0]) if len(found) == 1 else None


def _keys(expression: Expression) -> tuple[Key, ...] | None:
    head, *operands = expression
    if head.startswith("compare "):
        key = _single(head, operands)
        return None if key is None else (key,)
    if head == "or":
        return _either(operands[0], operands[1]) or _either(operands[1], operands[0])
    if head == "select" and operands[0][0].startswith("compare EQ"):
        return _on_tie(operands[0], operands[2], operands[1])
    return None


def _single(head: str, operands: Sequence[Expression]) -> Key | None:
    """``f(left) < f(right)``, or ``>``, in either order of sides."""
    _, direction, *kind = head.split()
    if direction not in ("LT", "GT"):
        return None
    left, right = operands
    sides = _side(left), _side(right)
    if sides == (1, 0):
        left, right, direction = right, left, {"LT": "GT", "GT": "LT"}[direction]
    elif sides != (0, 1):
        return None
    if _swapped(left) != right:
        return None
    return Key(left, direction == "GT", kind == ["TOTALORDER"])


def _either(first: Expression, second: Expression) -> tuple[Key, ...] | None:
    """``a < b or (a == b and next)``."""
    if second[0] != "and" or not first[0].startswith("compare"):
        return None
    for tie, rest in ((second[1], second[2]), (second[2], second[1])):
        if tie[0].startswith("compare EQ"):
            return _on_tie(tie, first, rest)
    return None


def _on_tie(tie: Expression, first: Expression, rest: Expression) -> tuple[Key, ...] | None:
    """The first key, then the others, where ``tie`` compares the same two values as the first."""
    head, more = _keys(first), _keys(rest)
    if head is None or more is None or len(head) != 1 or not first[0].startswith("compare"):
        return None
    same = set(tie[1:]) == set(first[1:]) and tie[0].split()[2:] == first[0].split()[2:]
    return (*head, *more) if same else None


def _side(expression: Expression) -> int | None:
    """0 where only the left elements occur, 1 for the right ones, None for both or neither."""
    sides = {index % 2 for index in _arguments(expression)}
    return sides.pop() if len(sides) == 1 else None


def _arguments(expression: Expression) -> set[int]:
    if expression[0] == "arg":
        return {expression[1]}
    return set().union(*(_arguments(each) for each in expression[1:] if isinstance(each, tuple)))


def _swapped(expression: Expression) -> Expression:
    """The same expression of the other side's arguments."""
    if expression[0] == "arg":
        return ("arg", expression[1] ^ 1)
    return (expression[0], *(_swapped(each) if isinstance(each, tuple) else each for each in expression[1:]))


def evaluated(b: Builder, block: Any, expression: Expression, operands: Sequence[Operand]) -> Tensor:
    """The key over whole operands: the block's own operators, up to the value that is compared."""
    from convertkit.converters.stablehlo.ops.regions import value_of

    sides = [each for operand in operands for each in (operand, operand)]
    result = b.regions.value(b, block, sides, value_of(block, expression))
    assert isinstance(result, Tensor)
    return b.full(result) if None in result.shape else _whole(b, result, operands[0])


def _whole(b: Builder, x: Tensor, like: Operand) -> Tensor:
    return b.full(x if x.shape == like.shape else b.broadcast_in_dim(x, like.shape, range(x.rank)))
