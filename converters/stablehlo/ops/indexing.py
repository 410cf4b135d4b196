"""Linear indices for gather and scatter: which element of which axes a window starts at.

Both address windows of an operand through vectors of start indices.  The axes that the indices
address are flattened into one, so that one ONNX operator with plain row numbers does the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from convertkit.converters.stablehlo.builder import Builder
from convertkit.converters.stablehlo.layout import Size, int64s
from convertkit.converters.stablehlo.tensor import I64, U64, Shape, Tensor, constant


@dataclass(frozen=True, slots=True)
class Addressing:
    """Dimension numbers that gather and scatter share, and the window's size along each axis.

    ``window_axes`` are the operand's axes that windows keep (neither collapsed nor batching).
    ``batch_of`` maps a batching axis of the operand to its axis of the indices' batch shape.
    """

    index_map: tuple[int, ...]
    window_axes: tuple[int, ...]
    batch_of: dict[int, int]
    index_vector_dim: int
    window: tuple[Size, ...]

    @property
    def addressed(self) -> tuple[int, ...]:
        """Axes of the operand that need an index, ascending."""
        return tuple(sorted({*self.index_map, *self.batch_of}))


def start_columns(b: Builder, indices: Tensor, addressing: Addressing) -> dict[int, Tensor]:
    """The int64 start along each mapped axis, of the indices' batch shape."""
    if indices.dtype == U64:
        indices = b.minimum(indices, (1 << 63) - 1)
    place = addressing.index_vector_dim
    if place < indices.rank and len(addressing.index_map) == 1:
        # Undoes what put the axis there, which a Cast would hide.
        return {addressing.index_map[0]: b.cast(b.squeeze(indices, [place]), I64)}
    wide = b.cast(indices, I64)
    if place == indices.rank:
        return {addressing.index_map[0]: wide}
    return {
        axis: b.squeeze(b.take(wide, place, column, column + 1), [place])
        for column, axis in enumerate(addressing.index_map)
    }


def batch_shape(indices: Tensor, addressing: Addressing) -> Shape:
    """The indices' shape without the vector dimension."""
    return tuple(size for axis, size in enumerate(indices.shape) if axis != addressing.index_vector_dim)


def addressed_positions(
    b: Builder, starts: dict[int, Tensor], addressing: Addressing, operand: Tensor, batch: Shape
) -> dict[int, Tensor]:
    """Per addressed axis the position of every window element, broadcastable to batch + window shape."""
    inner = [axis for axis in addressing.window_axes if axis in addressing.addressed]
    positions = {}
    for axis in addressing.addressed:
        if axis in addressing.batch_of:
            place = addressing.batch_of[axis]
            column = b.iota(b.size(operand, axis))
            column = b.unsqueeze(column, list(range(1, len(batch) - place)))
        else:
            column = starts[axis]
        column = b.unsqueeze(b.full(column), [column.rank + i for i in range(len(inner))])
        if axis in inner and addressing.window[axis] != 1:
            offset = b.iota(addressing.window[axis])
            offset = b.unsqueeze(offset, [1 + i for i in range(len(inner) - 1 - inner.index(axis))])
            column = b.add(column, offset)
        positions[axis] = column
    return positions


def linear(b: Builder, positions: dict[int, Tensor], operand: Tensor, axes: Sequence[int]) -> Tensor:
    """Row numbers in the operand flattened over ``axes``, first axis slowest."""
    total: Tensor | None = None
    for axis in axes:
        size = b.size(operand, axis)
        column = positions[axis]
        if total is None:
            total = column
            continue
        total = b.add(b.mul(total, b.squeeze(size, [0]) if isinstance(size, Tensor) else size), column)
    return total if total is not None else constant(np.zeros((), np.int64))


def flattened(b: Builder, x: Tensor, first: Sequence[int], rest: Sequence[int]) -> Tensor:
    """``x`` with the axes ``first`` merged into axis 0 and ``rest`` after it."""
    moved = b.transpose(x, [*first, *rest])
    if len(first) == 1:
        return moved
    shape = tuple(x.shape[axis] for axis in first)
    count = None if None in shape else int(np.prod([size or 0 for size in shape], dtype=np.int64))
    total: Size = 1
    for axis in first:
        size = b.size(x, axis)
        total = total * size if isinstance(total, int) and isinstance(size, int) else _product(b, total, size)
    sizes = b.sizes([total, *(b.size(x, axis) for axis in rest)])
    return b.reshape(moved, (count, *(x.shape[axis] for axis in rest)), sizes)


def _product(b: Builder, x: Size, y: Size) -> Tensor:
    left, right = (each if isinstance(each, Tensor) else int64s([each]) for each in (x, y))
    return b.mul(left, right)
