"""Selection by condition or index.  Source: TFLite kernels of the same names."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from convertkit.converters.tflite.builder import FREE, Builder, Tensor
from convertkit.converters.tflite.registry import Registry
from convertkit.errors import SourceError, Unsupported

indexing = Registry()


@indexing.reads("GATHER", "GatherOptions", moves=True)
def gather(b: Builder, x: Tensor, places: Tensor, *, axis: int, batch_dims: int) -> Tensor:
    axis, batch = axis % x.rank, batch_dims % (places.rank + 1) if batch_dims < 0 else batch_dims
    if not batch:
        return b.op("Gather", [x, places], {"axis": axis})
    if axis < batch:
        raise SourceError(f"axis={axis} within batch_dims={batch}")
    each = b.op("Unsqueeze", [b.cast(places, "int64"), b.constant([-1])])
    between = tuple(range(batch, axis))
    moved = b.transpose(x, (*range(batch), axis, *between, *range(axis + 1, x.rank)))
    y = b.op("GatherND", [moved, each], {"batch_dims": batch})
    chosen, rest = range(batch, places.rank), range(places.rank + len(between), places.rank + x.rank - 1 - batch)
    order = (*range(batch), *range(places.rank, places.rank + len(between)), *chosen, *rest)
    return b.op("Transpose", [y], {"perm": order}) if between else y


@indexing.reads("GATHER_ND", moves=True)
def gather_nd(b: Builder, x: Tensor, places: Tensor) -> Tensor:
    return b.op("GatherND", [x, b.cast(places, "int64")])


@indexing.reads("EMBEDDING_LOOKUP")
def embedding_lookup(b: Builder, places: Tensor, table: Tensor) -> Tensor:
    return b.op("Gather", [table, places], {"axis": 0})


@indexing.reads("SCATTER_ND", moves=True)
def scatter_nd(b: Builder, places: Tensor, updates: Tensor, shape: Tensor) -> Tensor:
    """Into zeros; what falls on one place is added up."""
    zeros = b.op("Expand", [b.scalar(0, updates), b.cast(shape, "int64")])
    return b.op("ScatterND", [zeros, b.cast(places, "int64"), updates], {"reduction": "add"})


@indexing.reads("DYNAMIC_UPDATE_SLICE", moves=True)
def dynamic_update_slice(b: Builder, x: Tensor, update: Tensor, start: Tensor) -> Tensor:
    """The start is moved so that the update fits, as XLA does; then each axis is scattered into."""
    if FREE in x.dims or FREE in update.dims:
        raise Unsupported("an update of dynamic size")
    changed = [axis for axis in range(x.rank) if x.dims[axis] != update.dims[axis]]
    if len(changed) > 1:
        return _block_update(b, x, update, start)
    if not changed:
        return update
    axis, room = changed[0], x.dims[changed[0]] - update.dims[changed[0]]
    begin = b.op("Gather", [b.cast(start, "int64"), b.constant([axis])])
    fitting = b.op("Clip", [begin, b.scalar(0, begin), b.scalar(room, begin)])
    behind = b.op("Add", [fitting, b.constant([update.dims[axis]])])
    axes = b.constant([axis])
    front = b.op("Slice", [x, b.constant([0]), fitting, axes])
    rest = b.op("Slice", [x, behind, b.constant([x.dims[axis]]), axes])
    return b.op("Concat", [front, update, rest], {"axis": axis})


def _block_update(b: Builder, x: Tensor, update: Tensor, start: Tensor) -> Tensor:
    """The places of a whole block, moved by a start at which it fits."""
    room = b.constant([size - part for size, part in zip(x.dims, update.dims, strict=True)])
    fitting = b.op("Max", [b.op("Min", [b.cast(start, "int64"), room]), b.constant([0] * x.rank)])
    grid = np.stack(np.meshgrid(*(np.arange(size) for size in update.dims), indexing="ij"), -1)
    return b.op("ScatterND", [x, b.op("Add", [b.constant(grid), fitting]), update])


@indexing.reads("ONE_HOT", "OneHotOptions")
def one_hot(b: Builder, places: Tensor, depth: Tensor, on: Tensor, off: Tensor, *, axis: int) -> Tensor:
    """A negative index is off everywhere; ONNX would count it from the end, so it is moved out of range."""
    size = b.cast(b.op("Reshape", [depth, b.constant([])]), places.dtype)
    negative = b.op("Less", [places, b.scalar(0, places)], dtype="bool")
    inside = b.op("Where", [negative, size, places], dtype=places.dtype)
    values = b.op("Concat", [b.op("Reshape", [each, b.constant([1])]) for each in (off, on)], {"axis": 0})
    return b.op("OneHot", [inside, b.op("Reshape", [size, b.constant([1])]), values], {"axis": axis}, dtype=on.dtype)


@indexing.reads("SELECT", moves=True)
def select(b: Builder, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """A condition of rank 1 chooses whole rows."""
    if condition.rank == 1 and x.rank > 1:
        condition = b.op("Unsqueeze", [condition, b.constant(range(1, x.rank))])
    return b.map("Where", [condition, x, y], dtype=x.dtype)


@indexing.reads("SELECT_V2", moves=True)
def select_v2(b: Builder, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return b.map("Where", [condition, x, y], dtype=x.dtype)


@indexing.reads("WHERE")
def where(b: Builder, condition: Tensor) -> Tensor:
    """Places of true elements, one per row."""
    places = b.op("NonZero", [b.cast(condition, "bool")], dtype="int64")
    return b.op("Transpose", [places], {"perm": (1, 0)})


@indexing.reads("UNIQUE", "UniqueOptions")
def unique(b: Builder, x: Tensor, *, idx_out_type: int) -> tuple[Tensor, ...]:
    """In order of first appearance, with the place of each element among them."""
    values, _, inverse, _ = b.ops("Unique", [x], {"sorted": 0}, 4)
    return values, replace(inverse, dtype="int64")
