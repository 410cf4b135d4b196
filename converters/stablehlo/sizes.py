"""Which sizes of a module are the same number, though only the running model knows it.

Values are followed through one function to the inputs whose sizes they come from, so calls must be inlined.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from jaxlib.mlir import ir as mlir
from jaxlib.mlir.dialects import stablehlo as hlo

from convertkit.converters.stablehlo.assertions import is_assertion
from convertkit.converters.stablehlo.mlir import integer, ints, shape_of, text

_ELEMENTWISE = frozenset(
    (
        *("abs", "cbrt", "ceil", "cosine", "count_leading_zeros", "exponential", "exponential_minus_one", "floor"),
        *("is_finite", "log", "log_plus_one", "logistic", "negate", "not", "popcnt", "round_nearest_afz"),
        *("round_nearest_even", "rsqrt", "sign", "sine", "sqrt", "tan", "tanh", "convert", "reverse"),
        *("add", "and", "atan2", "compare", "divide", "maximum", "minimum", "multiply", "or", "power", "remainder"),
        *("shift_left", "shift_right_arithmetic", "shift_right_logical", "subtract", "xor", "clamp", "select"),
    )
)
"""Operators whose result has the shape of an operand of the same rank."""

SIZED = frozenset(("dynamic_broadcast_in_dim", "dynamic_reshape", "dynamic_iota"))
"""Operators whose last operand is the shape of the result."""


@dataclass(frozen=True, slots=True)
class Number:
    """``offset`` more than the size of ``axis`` of ``value``; the offset alone where there is no value."""

    offset: int
    value: Any = None
    axis: int = 0


def operator(value: Any) -> str:
    """The StableHLO operator that computes a value; empty for an argument."""
    return "" if isinstance(value.owner, mlir.Block) else value.owner.name.removeprefix("stablehlo.")


def size_of_axis(value: Any, axis: int, assumed: tuple[Any, ...] = ()) -> Number:
    """One size of a value, told by the earliest value that has it.

    States of loops are not followed to before their loop where they are ``assumed``.
    """
    while True:
        known = shape_of(value.type)[axis]
        if known is not None:
            return Number(known)
        owner, name = value.owner, operator(value)
        if not name:
            start = _before_loop(value, axis, assumed)
            if start is None:
                return Number(0, value, axis)
            value = start
        elif name in SIZED:
            sizes = numbers(list(owner.operands)[-1], assumed)
            return Number(0, value, axis) if sizes is None else sizes[axis]
        elif name == "transpose":
            value, axis = owner.operands[0], ints(owner.attributes["permutation"])[axis]
        elif name == "real_dynamic_slice":
            sizes = _cut_sizes(owner, assumed)
            return Number(0, value, axis) if sizes is None else sizes[axis]
        elif name in ("gather", "dynamic_gather"):
            place = _batch_axis(owner, axis)
            if place is None:
                size = _window_size(owner, axis, assumed)
                return Number(0, value, axis) if size is None else size
            value, axis = owner.operands[1], place
        elif name == "dot_general":
            side, axis = _factor_axis(owner, axis)
            value = owner.operands[side]
        elif name == "while":
            states = owner.regions[1].blocks[0].arguments
            start = _before_loop(states[mlir.OpResult(value).result_number], axis, assumed)
            if start is None:
                return Number(0, value, axis)
            value = start
        elif name == "dynamic_update_slice" or (
            name == "concatenate" and integer(owner.attributes["dimension"]) != axis
        ):
            value = owner.operands[0]
        elif name in _ELEMENTWISE:
            rank = len(shape_of(value.type))
            value = next(each for each in owner.operands if len(shape_of(each.type)) == rank)
        else:
            return Number(0, value, axis)


def _cut_sizes(cut: Any, assumed: tuple[Any, ...]) -> tuple[Number, ...] | None:
    """The sizes of a slice from the start on, or of a window wherever it stands; steps are 1."""
    _, starts, stops, steps = cut.operands
    if any(each != Number(1) for each in numbers(steps, assumed) or (None,)):
        return None
    if all(each == Number(0) for each in numbers(starts, assumed) or (None,)):
        return numbers(stops, assumed)
    if operator(stops) != "add" or starts not in list(stops.owner.operands):
        return None
    lengths = [each for each in stops.owner.operands if each != starts]
    return numbers(lengths[0], assumed) if len(lengths) == 1 else None


def _batch_axis(gather: Any, axis: int) -> int | None:
    """Which axis of its indices an axis of a gather's result is, None where it is one of its windows'."""
    roles = hlo.GatherDimensionNumbers(gather.attributes["dimension_numbers"])
    if axis in roles.offset_dims:
        return None
    place = axis - sum(each < axis for each in roles.offset_dims)
    moved: int = place + (place >= roles.index_vector_dim)
    return moved


def _window_size(gather: Any, axis: int, assumed: tuple[Any, ...]) -> Number | None:
    """The size of a window's axis, as ``dynamic_gather`` is told it; JAX writes ``x[:, :2]`` of a dynamic batch so."""
    sizes = numbers(gather.operands[2], assumed) if len(gather.operands) > 2 else None
    if sizes is None:
        return None
    roles = hlo.GatherDimensionNumbers(gather.attributes["dimension_numbers"])
    dropped = (*roles.collapsed_slice_dims, *roles.operand_batching_dims)
    kept = [size for place, size in enumerate(sizes) if place not in dropped]
    return kept[list(roles.offset_dims).index(axis)]


def _factor_axis(product: Any, axis: int) -> tuple[int, int]:
    """Which operand of a ``dot_general`` an axis of its result comes from, and which axis it is there."""
    roles = hlo.DotDimensionNumbers(product.attributes["dot_dimension_numbers"])
    left, right = (len(shape_of(each.type)) for each in product.operands)
    batch = list(roles.lhs_batching_dimensions)
    dropped = (*roles.rhs_batching_dimensions, *roles.rhs_contracting_dimensions)
    places = [(0, each) for each in batch]
    places += [(0, each) for each in range(left) if each not in (*batch, *roles.lhs_contracting_dimensions)]
    places += [(1, each) for each in range(right) if each not in dropped]
    return places[axis]


def _before_loop(state: Any, axis: int, assumed: tuple[Any, ...]) -> Any:
    """What a state of a loop is before the first turn, None where turns may change its size, and for other arguments.

    By induction: a turn that leaves the size as it is, or gives it the value it had at first, always does.
    """
    loop = state.owner.owner.operation
    if loop.name != "stablehlo.while":
        return None
    place, body = state.arg_number, loop.regions[1].blocks[0]
    argument, start = body.arguments[place], loop.operands[place]
    if argument in assumed:
        return None
    after = size_of_axis(list(body.operations)[-1].operation.operands[place], axis, (*assumed, argument))
    unchanged = after == Number(0, argument, axis) or after == size_of_axis(start, axis, assumed)
    return start if unchanged else None


def numbers(value: Any, assumed: tuple[Any, ...] = ()) -> tuple[Number, ...] | None:
    """The elements of an integer array, row after row; None where they are not sizes."""
    owner, name = value.owner, operator(value)
    if name == "constant":
        return tuple(Number(each) for each in ints(owner.attributes["value"]))
    if name == "get_dimension_size":
        return (size_of_axis(owner.operands[0], integer(owner.attributes["dimension"]), assumed),)
    if name in ("reshape", "convert"):
        return numbers(owner.operands[0], assumed)
    if name == "concatenate" and integer(owner.attributes["dimension"]) == 0:
        parts = [numbers(each, assumed) for each in owner.operands]
        return None if None in parts else tuple(each for part in parts for each in part or ())
    if name in ("add", "subtract"):
        left, right = (numbers(each, assumed) for each in owner.operands)
        return _moved(left, right, 1 if name == "add" else -1)
    return None


def _moved(left: tuple[Number, ...] | None, right: tuple[Number, ...] | None, sign: int) -> tuple[Number, ...] | None:
    """The sums or differences with known numbers."""
    if left is None or right is None or any(each.value is not None for each in right):
        return None
    return tuple(replace(a, offset=a.offset + sign * b.offset) for a, b in zip(left, right, strict=True))


def equal(left: Number, right: Number, block: Any) -> bool:
    """Whether two numbers are one, by where they come from or because the module asserts it, as ``jax.export`` does."""
    if left == right:
        return True
    for op in block.operations:
        if is_assertion(op):
            asserted = op.operation.operands[0]
            if operator(asserted) == "compare" and text(asserted.owner.attributes["comparison_direction"]) == "EQ":
                pair = [numbers(each) for each in asserted.owner.operands]
                if (left,) in pair and (right,) in pair:
                    return True
    return False
