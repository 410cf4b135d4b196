"""``gather`` and ``dynamic_gather`` in full generality, through one ONNX ``Gather``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxlib.mlir.dialects import stablehlo as hlo

from convertkit.converters.stablehlo.builder import Builder
from convertkit.converters.stablehlo.layout import Size
from convertkit.converters.stablehlo.mlir import ints, shape_of
from convertkit.converters.stablehlo.ops.indexing import (
    Addressing,
    addressed_positions,
    batch_shape,
    flattened,
    linear,
    start_columns,
)
from convertkit.converters.stablehlo.registry import Handlers
from convertkit.converters.stablehlo.sizes import size_of_axis
from convertkit.converters.stablehlo.tensor import I64, Shape, Tensor, broadcast, constant
from convertkit.converters.stablehlo.turns import is_last_row
from convertkit.errors import Unsupported

gathers = Handlers()


@gathers.partwise
def gather(b: Builder, op: hlo.GatherOp, x: Tensor, indices: Tensor) -> Tensor:
    return gathered(b, hlo.GatherDimensionNumbers(op.dimension_numbers), x, indices, ints(op.slice_sizes))


@gathers.partwise
def dynamic_gather(b: Builder, op: hlo.DynamicGatherOp, x: Tensor, indices: Tensor, sizes: Tensor) -> Tensor:
    numbers = hlo.GatherDimensionNumbers(op.dimension_numbers)
    dropped = (*ints(numbers.collapsed_slice_dims), *ints(numbers.operand_batching_dims))
    kept = [axis for axis in range(x.rank) if axis not in dropped]
    # The result tells more than the operand does, which holds known and dynamic sizes together.
    made = shape_of(op.results[0].type)
    known = {axis: made[place] for axis, place in zip(kept, sorted(ints(numbers.offset_dims)), strict=True)}
    window = [known.get(axis, 1) for axis in range(x.rank)]
    if _takes_last_row(op.operation, numbers, x, indices, window):
        x, indices = b.take(x, ints(numbers.start_index_map)[0], -1), constant(np.zeros(1, np.int64))
    return gathered(
        b,
        numbers,
        x,
        indices,
        [_computed(b, sizes, axis) if size is None else size for axis, size in enumerate(window)],
    )


def _takes_last_row(
    op: Any, numbers: hlo.GatherDimensionNumbers, x: Tensor, indices: Tensor, window: Sequence[int | None]
) -> bool:
    """Whether the only window is the last one along a dynamic axis."""
    axes, batching = ints(numbers.start_index_map), ints(numbers.operand_batching_dims)
    if len(axes) != 1 or batching or indices.shape != (1,) or window[axes[0]] != 1 or x.shape[axes[0]] is not None:
        return False
    return is_last_row(op.operands[1], size_of_axis(op.operands[0], axes[0]))


def _computed(b: Builder, sizes: Tensor, axis: int) -> Size:
    if sizes.const is not None:
        return int(sizes.const[axis])
    return b.take(b.cast(sizes, I64), 0, axis, axis + 1)


def gathered(
    b: Builder, numbers: hlo.GatherDimensionNumbers, x: Tensor, indices: Tensor, window: Sequence[Size]
) -> Tensor:
    """Windows of ``x``; a window that would reach outside is moved inside, as StableHLO says."""
    collapsed, batching = ints(numbers.collapsed_slice_dims), ints(numbers.operand_batching_dims)
    place = numbers.index_vector_dim
    batch_axes = [axis for axis in range(indices.rank) if axis != place]
    batch_of = dict(
        zip(batching, (batch_axes.index(axis) for axis in ints(numbers.start_indices_batching_dims)), strict=True)
    )
    kept = tuple(axis for axis in range(x.rank) if axis not in (*collapsed, *batching))
    addressing = Addressing(ints(numbers.start_index_map), kept, batch_of, place, tuple(window))
    batch = batch_shape(indices, addressing)
    starts = start_columns(b, indices, addressing)
    starts = {axis: _inside(b, start, b.size(x, axis), window[axis]) for axis, start in starts.items()}
    return _select(b, x, starts, addressing, batch, ints(numbers.offset_dims))


def _inside(b: Builder, start: Tensor, whole: Size, window: Size) -> Tensor:
    if isinstance(whole, int) and isinstance(window, int):
        if start.const is not None:
            return constant(np.clip(start.const, 0, whole - window))
        limit = constant(np.array(whole - window, np.int64))
    else:
        sizes = (
            b.squeeze(each, [0]) if isinstance(each, Tensor) else constant(np.array(each)) for each in (whole, window)
        )
        limit = b.sub(*sizes)
    return b.maximum(b.minimum(start, limit), 0)


def _select(
    b: Builder,
    x: Tensor,
    starts: dict[int, Tensor],
    addressing: Addressing,
    batch: Shape,
    offset_dims: Sequence[int],
) -> Tensor:
    addressed = addressing.addressed
    rest = [axis for axis in range(x.rank) if axis not in addressed]
    for axis in rest:
        size = addressing.window[axis]
        if isinstance(size, int) and size != x.shape[axis]:
            if x.shape[axis] is not None:
                x = b.take(x, axis, 0, size)
            elif size != 1:
                raise Unsupported(f"a window of {size} of the dynamic axis {axis} that no index addresses")
    inner = [axis for axis in addressing.window_axes if axis in addressed]
    fixed = _fixed(starts, addressing, batch)
    if fixed is not None:
        return _cut(b, x, fixed, addressing, batch, offset_dims)
    window = tuple(size if isinstance(size := addressing.window[axis], int) else None for axis in inner)
    if not addressed:
        picked = b.broadcast_in_dim(x, batch + x.shape, range(len(batch), len(batch) + x.rank))
    else:
        positions = addressed_positions(b, starts, addressing, x, batch)
        rows = linear(b, positions, x, addressed)
        full = broadcast(rows.shape, batch + window) if None not in batch + window else rows.shape
        rows = rows if rows.shape == full else b.full(b.broadcast_in_dim(rows, full, range(len(full))))
        source = flattened(b, x, addressed, rest)
        picked = b.op("Gather", [source, rows], rows.shape + source.shape[1:], x.dtype, {"axis": 0})
    # picked: batch axes, then the addressed window axes, then the rest.
    windows = inner + [axis for axis in rest if axis in addressing.window_axes]
    order, batches, offsets = [], iter(range(len(batch))), iter(addressing.window_axes)
    for axis in range(picked.rank):
        order.append(len(batch) + windows.index(next(offsets)) if axis in offset_dims else next(batches))
    return b.transpose(picked, order)


def _fixed(starts: dict[int, Tensor], addressing: Addressing, batch: Shape) -> dict[int, int] | None:
    """Where the only window stands along each addressed axis; None where it moves, or there are several."""
    places = {axis: start.scalar for axis, start in starts.items()}
    known = all(isinstance(addressing.window[axis], int) and place is not None for axis, place in places.items())
    if addressing.batch_of or any(size != 1 for size in batch) or not known:
        return None
    return {axis: int(place) for axis, place in places.items() if place is not None}


def _cut(
    b: Builder, x: Tensor, starts: dict[int, int], addressing: Addressing, batch: Shape, offset_dims: Sequence[int]
) -> Tensor:
    """One window at a place that is known: a slice, which leaves the dynamic axes as they are."""
    for axis, start in starts.items():
        size = addressing.window[axis]
        assert isinstance(size, int), "a fixed window has a known size along the axes that are addressed"
        x = b.take(x, axis, start, start + size)
    x = b.squeeze(x, [axis for axis in range(x.rank) if axis not in addressing.window_axes])
    rank = len(batch) + x.rank
    return b.unsqueeze(x, [axis for axis in range(rank) if axis not in offset_dims])
