"""Reductions with any reducer.

Add, multiply, maximum, minimum, and, or map to ONNX reductions; the arg-max idiom of JAX is matched
exactly; every other body runs as a balanced tree, whose order StableHLO leaves open.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxlib.mlir.dialects import stablehlo as hlo

from convertkit.converters.stablehlo.builder import Builder
from convertkit.converters.stablehlo.mlir import integer, ints
from convertkit.converters.stablehlo.ops.regions import Expression, expressions, reducer_of
from convertkit.converters.stablehlo.reductions import Reducer
from convertkit.converters.stablehlo.registry import Handlers
from convertkit.converters.stablehlo.sizes import operator
from convertkit.converters.stablehlo.tensor import BF16, BOOL, F16, Complex, Operand, Tensor, highest, is_float, lowest
from convertkit.errors import Unsupported

reductions = Handlers()


@reductions.translates
def reduce(b: Builder, op: hlo.ReduceOp, *operands: Tensor) -> Operand | tuple[Operand, ...]:
    axes, block = ints(op.dimensions), op.regions[0].blocks[0]
    half = len(operands) // 2
    inputs, starts = operands[:half], operands[half:]
    kind = reducer_of(block)
    if kind is not None and has_reduction(kind, inputs[0]):
        return reduced(b, kind, inputs[0], axes, starts[0])
    found = arg_extreme(b, op, operands, axes)
    return found if found is not None else tree(b, block, inputs, starts, axes)


@reductions.complex
def reduce_complex(b: Builder, op: hlo.ReduceOp, *operands: Operand) -> Operand | tuple[Operand, ...]:
    axes, block = ints(op.dimensions), op.regions[0].blocks[0]
    half = len(operands) // 2
    x, start = operands[0], operands[half]
    if reducer_of(block) == "add" and isinstance(x, Complex) and isinstance(start, Complex):
        parts = [reduced(b, "add", part, axes, first) for part, first in ((x.re, start.re), (x.im, start.im))]
        return Complex(parts[0], parts[1])
    return tree(b, block, operands[:half], operands[half:], axes)


def reduced(b: Builder, kind: Reducer, x: Tensor, axes: Sequence[int], start: Tensor) -> Tensor:
    """An ONNX reduction followed by the start value, unless that is the reducer's identity."""
    if any(x.shape[axis] == 0 for axis in axes):
        shape = tuple(size for axis, size in enumerate(x.shape) if axis not in axes)
        return b.broadcast_in_dim(start, shape, [])
    count = math.prod(x.shape[axis] or 0 for axis in axes)
    if x.dtype in (F16, BF16) and kind in ("add", "multiply") and 1 < count <= SEQUENTIAL:
        return sequential(b, kind, _merged_last(b, x, axes), start)
    result = b.reduce(kind, x, axes)
    return result if start.scalar == identity(kind, x) else combined(b, kind, result, start)


def has_reduction(kind: Reducer, x: Tensor) -> bool:
    """Whether an ONNX reduction computes this exactly; bitwise logic and wrapping products have none."""
    if kind == "xor" or (kind in ("and", "or") and x.dtype != BOOL):
        return False
    return kind != "multiply" or is_float(x.dtype) or x.dtype == BOOL


SEQUENTIAL = 64
"""Up to this many 16-bit floats are summed one after the other, each sum rounded as XLA does on CPU."""


def sequential(b: Builder, kind: Reducer, x: Tensor, start: Tensor) -> Tensor:
    """Combine the elements of the last axis from first to last, rounding each time."""
    axis, total = x.rank - 1, start
    for place in range(x.shape[axis] or 0):
        total = combined(b, kind, total, b.gather(x, place, axis))
    return total


def _merged_last(b: Builder, x: Tensor, axes: Sequence[int]) -> Tensor:
    kept = [axis for axis in range(x.rank) if axis not in axes]
    moved = b.transpose(x, [*kept, *sorted(axes)])
    sizes = b.sizes([*(b.size(x, axis) for axis in kept), -1])
    count = math.prod(x.shape[axis] or 0 for axis in axes)
    return b.reshape(moved, (*(x.shape[axis] for axis in kept), count), sizes)


def identity(kind: Reducer, x: Tensor) -> float | int | bool | None:
    """The value that does not change what it is combined with."""
    if kind == "add":
        return 0 if x.dtype != BOOL else False
    if kind == "multiply":
        return 1 if x.dtype != BOOL else True
    if kind in ("maximum", "or"):
        return lowest(x.dtype) if kind == "maximum" or x.dtype == BOOL else 0
    if kind == "xor":
        return 0
    return highest(x.dtype) if kind == "minimum" or x.dtype == BOOL else -1


def combined(b: Builder, kind: Reducer, x: Tensor, y: Tensor) -> Tensor:
    """One application of a reducer."""
    if x.dtype == BOOL:
        if kind == "xor":
            return b.elementwise("Xor", x, y)
        return b.logical_or(x, y) if kind in ("add", "maximum", "or") else b.logical_and(x, y)
    operators = {
        "add": b.add,
        "multiply": b.mul,
        "maximum": b.maximum,
        "minimum": b.minimum,
        "and": b.bit_and,
        "or": b.bit_or,
        "xor": b.bit_xor,
    }
    return operators[kind](x, y)


# --- arg max -------------------------------------------------------------------------------------

_A, _I, _B, _J = (("arg", index) for index in range(4))


def _arg_idiom(direction: str, kind: str, asks_for_nan: bool) -> tuple[Expression, Expression]:
    better: Expression = (f"compare {direction} {kind}", _A, _B)
    if asks_for_nan:
        better = ("or", better, (f"compare NE {kind}", _A, _A))
    tie = ("and", (f"compare EQ {kind}", _A, _B), ("compare LT SIGNED", _I, _J))
    return ("select", better, _A, _B), ("select", ("or", better, tie), _I, _J)


# JAX asks every type for NaN, also integers, which are none.
_ARG_IDIOMS = {
    _arg_idiom(direction, kind, asks): direction == "GT"
    for direction in ("GT", "LT")
    for kind, asks in (("FLOAT", True), ("SIGNED", True), ("SIGNED", False), ("UNSIGNED", True), ("UNSIGNED", False))
}


def arg_extreme(
    b: Builder, op: hlo.ReduceOp, operands: Sequence[Tensor], axes: Sequence[int]
) -> tuple[Tensor, ...] | None:
    """JAX's argmax and argmin: the first of equal values wins, and the first NaN above all.

    None for any other body, for indices that do not count the axis, and for a start that could win.
    """
    if len(operands) != 4 or len(axes) != 1:
        return None
    values, index, start, first = operands
    found = expressions(op.regions[0].blocks[0])
    greatest = _ARG_IDIOMS.get((found[0], found[1])) if len(found) == 2 else None
    axis = axes[0]
    if greatest is None or not (_counts(index, axis) or _is_iota(op.operands[1], axis)):
        return None
    if start.scalar != identity("maximum" if greatest else "minimum", values) or first.scalar != 0:
        return None
    best = b.reduce("maximum" if greatest else "minimum", values, [axis])
    place = b.arg_extreme(values, axis, greatest)
    if is_float(values.dtype):
        missing = b.is_nan(values)
        any_missing = b.reduce("or", missing, [axis])
        place = b.where(any_missing, b.arg_extreme(missing, axis, True), place)
        best = b.where(any_missing, float("nan"), best)
    return best, b.cast(place, index.dtype)


def _is_iota(value: Any, axis: int) -> bool:
    """Whether a value counts along ``axis``, be it as long as only the running model knows."""
    if operator(value) not in ("iota", "dynamic_iota"):
        return False
    return integer(value.owner.attributes["iota_dimension"]) == axis


def _counts(index: Tensor, axis: int) -> bool:
    """Whether a tensor holds 0, 1, 2, … along ``axis``."""
    size = index.shape[axis]
    if size is None or not isinstance(index.core, np.ndarray):
        return False
    place = axis - index.rank + len(index.core_shape)
    counted = np.arange(size).reshape([-1 if i == place else 1 for i in range(len(index.core_shape))])
    return place >= 0 and index.core_shape[place] == size and bool(np.all(index.core == counted))


# --- any reducer -----------------------------------------------------------------------------------


def tree(
    b: Builder, block: Any, inputs: Sequence[Operand], starts: Sequence[Operand], axes: Sequence[int]
) -> tuple[Operand, ...]:
    """Combine halves until one element is left along each axis, then the start value."""
    if len(axes) == 1 and all(each.dtype in (F16, BF16) for each in inputs):
        count = inputs[0].shape[axes[0]]
        if count is not None and count <= SEQUENTIAL:
            return _in_turn(b, block, inputs, starts, axes[0], count)
    values: tuple[Operand, ...] = tuple(inputs)
    for axis in sorted(axes, reverse=True):
        values = _halved(b, block, values, axis)
    return b.regions.vectorized(b, block, (*starts, *values))


def _in_turn(
    b: Builder, block: Any, inputs: Sequence[Operand], starts: Sequence[Operand], axis: int, count: int
) -> tuple[Operand, ...]:
    """One element after the other: 16-bit floats round each time, so that the order shows."""
    so_far: tuple[Operand, ...] = tuple(starts)
    for place in range(count):
        here = [_dropped(b, part(b, value, axis, place, place + 1), axis) for value in inputs]
        so_far = b.regions.vectorized(b, block, (*so_far, *here))
    return so_far


def _halved(b: Builder, block: Any, values: tuple[Operand, ...], axis: int) -> tuple[Operand, ...]:
    size = values[0].shape[axis]
    if size is None:
        raise Unsupported("a reducer without ONNX counterpart along a dynamic axis")
    while size > 1:
        half = size // 2
        first = [part(b, value, axis, 0, half) for value in values]
        second = [part(b, value, axis, half, 2 * half) for value in values]
        rest = [part(b, value, axis, 2 * half, size) for value in values]
        values = b.regions.vectorized(b, block, (*first, *second))
        if size % 2:
            values = tuple(_joined(b, pair, axis) for pair in zip(values, rest, strict=True))
        size = half + size % 2
    return tuple(_dropped(b, value, axis) for value in values)


def part(b: Builder, value: Operand, axis: int, start: int, stop: int) -> Operand:
    """A range of one axis."""
    if isinstance(value, Complex):
        return Complex(b.take(value.re, axis, start, stop), b.take(value.im, axis, start, stop))
    return b.take(value, axis, start, stop)


def _joined(b: Builder, pair: tuple[Operand, Operand], axis: int) -> Operand:
    left, right = pair
    if isinstance(left, Complex) and isinstance(right, Complex):
        return Complex(b.concat([left.re, right.re], axis), b.concat([left.im, right.im], axis))
    assert isinstance(left, Tensor)
    assert isinstance(right, Tensor)
    return b.concat([left, right], axis)


def _dropped(b: Builder, value: Operand, axis: int) -> Operand:
    if isinstance(value, Complex):
        return Complex(b.squeeze(value.re, [axis]), b.squeeze(value.im, [axis]))
    return b.squeeze(value, [axis])
