"""Operators that move data without looking at it, for static and dynamic shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from jaxlib.mlir.dialects import stablehlo as hlo

from convertkit.converters.stablehlo.builder import Builder
from convertkit.converters.stablehlo.layout import Size, int64s
from convertkit.converters.stablehlo.mlir import dtype_of, integer, ints, shape_of
from convertkit.converters.stablehlo.registry import Handlers
from convertkit.converters.stablehlo.sizes import Number, equal, numbers, operator, size_of_axis
from convertkit.converters.stablehlo.tape import Splice
from convertkit.converters.stablehlo.tensor import I32, I64, U64, Complex, Operand, Shape, Tensor, constant, static
from convertkit.converters.stablehlo.turns import gathered, is_last_row, row_of_turn
from convertkit.errors import Unsupported

movement = Handlers()


@movement.partwise
def transpose(b: Builder, op: hlo.TransposeOp, x: Tensor) -> Tensor:
    return b.transpose(x, ints(op.permutation))


@movement.partwise
def reshape(b: Builder, op: hlo.ReshapeOp, x: Tensor) -> Tensor:
    return b.reshape(x, shape_of(op.result.type))


@movement.partwise
def dynamic_reshape(b: Builder, op: hlo.DynamicReshapeOp, x: Tensor, sizes: Tensor) -> Tensor:
    return b.reshape(x, shape_of(op.result.type), b.cast(sizes, I64))


@movement.partwise
def broadcast_in_dim(b: Builder, op: hlo.BroadcastInDimOp, x: Tensor) -> Tensor:
    return b.broadcast_in_dim(x, shape_of(op.result.type), ints(op.broadcast_dimensions))


@movement.partwise
def dynamic_broadcast_in_dim(b: Builder, op: hlo.DynamicBroadcastInDimOp, x: Tensor, sizes: Tensor) -> Tensor:
    dims = ints(op.broadcast_dimensions)
    return b.broadcast_in_dim(x, shape_of(op.result.type), dims, b.cast(sizes, I64))


@movement.partwise
def concatenate(b: Builder, op: hlo.ConcatenateOp, *parts: Tensor) -> Tensor:
    return b.concat(parts, integer(op.dimension))


@movement.partwise
def reverse(b: Builder, op: hlo.ReverseOp, x: Tensor) -> Tensor:
    return b.reverse(x, ints(op.dimensions))


@movement.partwise
def slice_(b: Builder, op: hlo.SliceOp, x: Tensor) -> Tensor:
    starts, stops, steps = ints(op.start_indices), ints(op.limit_indices), ints(op.strides)
    if None not in x.shape:
        return b.slice(x, starts, stops, steps)
    for axis, size in enumerate(x.shape):
        if (starts[axis], stops[axis], steps[axis]) != (0, size, 1):
            x = b.take(x, axis, starts[axis], stops[axis], steps[axis])
    return x


@movement.partwise
def real_dynamic_slice(
    b: Builder, op: hlo.RealDynamicSliceOp, x: Tensor, starts: Tensor, stops: Tensor, steps: Tensor
) -> Tensor:
    cut = _known_cut(op.operation)
    if cut is not None:
        for axis, (start, stop, step) in enumerate(cut):
            if (start, stop, step) != (0, None, 1):
                x = b.take(x, axis, start, _END if stop is None else stop, step)
        return x
    window = _window(op.operation)
    if window is not None:
        for axis, (first, length) in window.items():
            x = _cut_from(b, x, axis, op.operation.operands[0], first, length)
        return x
    bounds = [b.cast(each, I64) for each in (starts, stops)]
    axes = int64s(range(x.rank))
    return b.op("Slice", [x, *bounds, axes, b.cast(steps, I64)], shape_of(op.result.type), x.dtype)


_END = np.iinfo(np.int64).max


def _known_cut(op: Any) -> list[tuple[int, int | None, int]] | None:
    """Start, stop and step along each axis, None for the stop at its end; None where they only show at run time."""
    x, *bounds = op.operands
    starts, stops, steps = (numbers(each) for each in bounds)
    if starts is None or stops is None or steps is None or any(each.value is not None for each in (*starts, *steps)):
        return None
    cut = []
    for axis, (start, stop, step) in enumerate(zip(starts, stops, steps, strict=True)):
        ends = equal(stop, size_of_axis(x, axis), op.block)
        if not ends and stop.value is not None:
            return None
        cut.append((start.offset, None if ends else stop.offset, step.offset))
    return cut


def _window(op: Any) -> dict[int, tuple[Any, int]] | None:
    """The start (a scalar of the module) and the size along each axis that is cut, where a slice is a window.

    A window's start is moved so that it lies inside, as in ``dynamic_slice``, which JAX writes as
    ``clamp(0, start, sizes of x − sizes)`` where sizes are dynamic.  None for any other slice.
    """
    x, starts, stops, steps = op.operands
    if operator(starts) != "clamp" or operator(stops) != "add" or starts not in list(stops.owner.operands):
        return None
    low, wanted, high = starts.owner.operands
    ends = [each for each in stops.owner.operands if each != starts]
    if operator(wanted) != "concatenate" or operator(high) != "subtract" or len(ends) != 1:
        return None
    firsts = [each.owner.operands[0] if operator(each) == "reshape" else None for each in wanted.owner.operands]
    lengths, (whole, less) = numbers(ends[0]), [numbers(each) for each in high.owner.operands]
    here = tuple(size_of_axis(x, axis) for axis in range(len(shape_of(x.type))))
    simple = numbers(low) == (Number(0),) * len(here) and numbers(steps) == (Number(1),) * len(here)
    if not simple or lengths is None or whole != here or less != lengths or len(firsts) != len(here):
        return None
    cut = {axis: (firsts[axis], length) for axis, length in enumerate(lengths) if length != here[axis]}
    if any(first is None or shape_of(first.type) or length.value is not None for first, length in cut.values()):
        return None
    return {axis: (first, length.offset) for axis, (first, length) in cut.items()}


@movement.translates
def iota(b: Builder, op: hlo.IotaOp) -> Operand:
    shape = static(shape_of(op.result.type))
    return counting(b, shape[integer(op.iota_dimension)], integer(op.iota_dimension), shape, dtype_of(op.result.type))


@movement.complex
def complex_iota(b: Builder, op: hlo.IotaOp) -> Operand:
    real = iota(b, op)
    assert isinstance(real, Tensor)
    return Complex(real, Tensor(np.zeros((), real.dtype.numpy()), (), real.shape, real.dtype))


@movement.translates
def dynamic_iota(b: Builder, op: hlo.DynamicIotaOp, sizes: Tensor) -> Operand:
    shape, axis = shape_of(op.result.type), integer(op.iota_dimension)
    extent = b.cast(sizes, I64)
    known = shape[axis]
    size: Size = known if known is not None else b.take(extent, 0, axis, axis + 1)
    return counting(b, size, axis, shape, dtype_of(op.result.type), extent)


def counting(
    b: Builder, size: Size, axis: int, shape: Shape, dtype: ir.DataType, extent: Tensor | None = None
) -> Tensor:
    """0, 1, 2, … along one axis, the same along the others."""
    return b.broadcast_in_dim(b.cast(b.iota(size), dtype), shape, [axis], extent)


@movement.translates
def get_dimension_size(b: Builder, op: hlo.GetDimensionSizeOp, x: Tensor) -> Tensor:
    size = b.size(x, integer(op.dimension))
    if isinstance(size, int):
        return constant(np.array(size, np.int32))
    return b.cast(b.squeeze(size, [0]), I32)


@movement.partwise
def pad(b: Builder, op: hlo.PadOp, x: Tensor, value: Tensor) -> Tensor:
    low, high = ints(op.edge_padding_low), ints(op.edge_padding_high)
    return padded(b, x, value, low, high, ints(op.interior_padding))


def padded(
    b: Builder, x: Tensor, value: Tensor, low: Sequence[int], high: Sequence[int], interior: Sequence[int]
) -> Tensor:
    """Padding that may be negative (cropping) and between elements."""
    for axis, between in enumerate(interior):
        if between:
            x = _spread(b, x, value, axis, between)
    x = b.pad(x, [max(0, n) for n in low], [max(0, n) for n in high], value)
    for axis, (before, after) in enumerate(zip(low, high, strict=True)):
        size = x.shape[axis]
        if (before < 0 or after < 0) and size is None:
            x = _cropped(b, x, axis, max(0, -before), max(0, -after))
        elif before < 0 or after < 0:
            x = b.take(x, axis, max(0, -before), max(0, -before, (size or 0) - max(0, -after)))
    return x


def _cropped(b: Builder, x: Tensor, axis: int, before: int, after: int) -> Tensor:
    """A dynamic axis without its first and last elements; nothing is left of a shorter one."""
    end = int64s([-after if after else np.iinfo(np.int64).max])
    return b.op("Slice", [x, int64s([before]), end, int64s([axis])], x.shape, x.dtype)


def _spread(b: Builder, x: Tensor, value: Tensor, axis: int, between: int) -> Tensor:
    """Put ``between`` copies of ``value`` between neighbours along ``axis``."""
    size = x.shape[axis]
    if size is not None and size < 2:
        return x
    apart = b.unsqueeze(x, [axis + 1])
    highs = [0] * apart.rank
    highs[axis + 1] = between
    apart = b.pad(apart, [0] * apart.rank, highs, value)
    each = b.size(apart, axis)
    whole = each * (between + 1) if isinstance(each, int) else b.mul(each, int64s([between + 1]))
    kept = [b.size(apart, place) for place in range(apart.rank)]
    sizes: list[Size] = [*kept[:axis], whole, *kept[axis + 2 :]]
    shape = tuple(part if isinstance(part, int) else None for part in sizes)
    joined = b.reshape(apart, shape, b.sizes(sizes))
    if size is not None:
        return b.take(joined, axis, 0, size * (between + 1) - between)
    return b.op("Slice", [joined, int64s([0]), int64s([-between]), int64s([axis])], shape, x.dtype)


@movement.translates
def dynamic_pad(
    b: Builder, op: hlo.DynamicPadOp, x: Tensor, value: Tensor, low: Tensor, high: Tensor, interior: Tensor
) -> Tensor:
    if low.const is not None and high.const is not None and interior.const is not None:
        amounts = [[int(n) for n in each] for each in (low.const, high.const, interior.const)]
        return padded(b, x, value, *amounts)
    if interior.scalar != 0:
        raise Unsupported("interior padding that is known only at run time")
    amounts_ = b.concat([b.cast(low, I64), b.cast(high, I64)], 0)
    return b.op("Pad", [x, amounts_, b.reshape(value, ())], shape_of(op.result.type), x.dtype)


@movement.partwise
def dynamic_slice(b: Builder, op: hlo.DynamicSliceOp, x: Tensor, *starts: Tensor) -> Tensor:
    whole, *firsts = op.operation.operands
    for axis, (first, size) in enumerate(zip(firsts, ints(op.slice_sizes), strict=True)):
        if x.shape[axis] != size:
            x = _cut_from(b, x, axis, whole, first, size)
    return x


def _cut_from(b: Builder, x: Tensor, axis: int, whole: Any, start: Any, size: int) -> Tensor:
    """``size`` elements along one axis from ``start`` on, which is moved so that they exist.

    ``whole`` and ``start`` (a scalar) are values of the module, ``x`` what came of the first.
    """
    if x.shape[axis] is None and size == 1:
        rows = size_of_axis(whole, axis)
        row = row_of_turn(b, start, rows)
        if row is not None:
            return gathered(b, x, axis, row)
        if is_last_row(start, rows):
            return b.take(x, axis, -1)
    found = b.regions.known(start)
    assert isinstance(found, Tensor)
    first = clamped_start(b, found, b.size(x, axis), size)
    if size == 1:
        return b.gather(x, first, axis)
    last = b.add(first, int64s([size]))
    shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
    return b.op("Slice", [x, first, last, int64s([axis])], shape, x.dtype)


def clamped_start(b: Builder, start: Tensor, whole: Size, size: Size) -> Tensor:
    """The start as an int64 vector of one element, moved so that the window lies inside."""
    if start.dtype == U64:
        start = b.minimum(start, (1 << 63) - 1)
    first = b.cast(start, I64)
    if isinstance(whole, int) and isinstance(size, int):
        if first.const is not None:
            return int64s([int(np.clip(first.const, 0, whole - size))])
        if b.lies_between(first, 0, whole - size):
            return b.reshape(first, (1,))
        limit = constant(np.array(whole - size, np.int64))
    else:
        limit = b.sub(*(b.squeeze(e, [0]) if isinstance(e, Tensor) else constant(np.array(e)) for e in (whole, size)))
    return b.reshape(b.full(b.maximum(b.minimum(first, limit), 0)), (1,))


@movement.partwise
def dynamic_update_slice(
    b: Builder, op: hlo.DynamicUpdateSliceOp, x: Tensor, update: Tensor, *starts: Tensor
) -> Tensor:
    axes = [axis for axis in range(x.rank) if not _covers(op.operation, axis)]
    firsts = {axis: _first(b, op.operation, x, update, axis, starts[axis]) for axis in axes}
    # Dynamic axes last: there the update is as long as a rule, and only its window has to be cut to find out.
    return _updated(b, x, update, [(axis, firsts[axis]) for axis in sorted(axes, key=lambda a: x.shape[a] is None)])


def _first(b: Builder, op: Any, x: Tensor, update: Tensor, axis: int, start: Tensor) -> Tensor:
    """Where an update begins along an axis, moved so that it lies inside."""
    if x.shape[axis] is None and update.shape[axis] == 1:
        row = row_of_turn(b, op.operands[2 + axis], size_of_axis(op.operands[0], axis))
        if row is not None:
            index, turn, backward = row
            b.numbers_turn(index, turn.number, backward=backward)
            return index
    return clamped_start(b, start, b.size(x, axis), b.size(update, axis))


def _covers(op: Any, axis: int) -> bool:
    """Whether an update is as long as what it is written to; its start along that axis is then moved to 0."""
    whole, update = (size_of_axis(each, axis) for each in op.operands[:2])
    return equal(update, whole, op.block)


def _updated(b: Builder, x: Tensor, update: Tensor, places: Sequence[tuple[int, Tensor]]) -> Tensor:
    """The update in its place along the first axis, inside the window that the other axes' places cut out of it."""
    if not places:
        return update
    axis, first = places[0]
    if len(places) > 1:
        size = b.size(update, axis)
        last = b.add(first, size if isinstance(size, Tensor) else int64s([size]))
        shape = (*x.shape[:axis], update.shape[axis], *x.shape[axis + 1 :])
        window = b.op("Slice", [x, first, last, int64s([axis])], shape, x.dtype)
        update = _updated(b, window, update, places[1:])
    return _spliced(b, x, update, axis, first)


def _spliced(b: Builder, x: Tensor, update: Tensor, axis: int, first: Tensor) -> Tensor:
    size = b.size(update, axis)
    last = b.add(first, size if isinstance(size, Tensor) else int64s([size]))
    free = (*x.shape[:axis], None, *x.shape[axis + 1 :])
    end = int64s([np.iinfo(np.int64).max])
    before = b.op("Slice", [x, int64s([0]), first, int64s([axis])], free, x.dtype)
    after = b.op("Slice", [x, last, end, int64s([axis])], free, x.dtype)
    result = b.op("Concat", [before, update, after], x.shape, x.dtype, {"axis": axis})
    nodes = [each.core.producer() for each in (before, after, result) if isinstance(each.core, ir.Value)]
    b.spliced(result, Splice(x, update, axis, first, tuple(node for node in nodes if node is not None)))
    return result
