"""ONNX operators that put elements in places, as MIL."""

from __future__ import annotations

import math

import numpy as np

from convertkit.errors import Unsupported
from convertkit.onnx.columns import block_places
from convertkit.onnx.registry import Registry
from convertkit.targets.coreml.builder import Builder
from convertkit.targets.coreml.handlers.indexing import from_front
from convertkit.targets.coreml.handlers.operands import integers
from convertkit.targets.coreml.tensor import Tensor, constant

scatter = Registry()

_MODES = {"none": "update", "add": "add", "mul": "mul", "min": "min", "max": "max"}


@scatter.lowers("ScatterElements", since=18)
def scatter_elements(
    b: Builder, x: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none"
) -> Tensor:
    """By ``scatter_nd`` where MIL's own would want updates for every row."""
    if x.dtype == "bool":
        wide = scatter_elements(b, b.cast(x, "int32"), indices, b.cast(updates, "int32"), axis=axis)
        return b.cast(wide, "bool")
    at = axis % x.rank
    places = from_front(b, indices, x.shape[at], x, at)
    if x.shape[:at] + x.shape[at + 1 :] == indices.shape[:at] + indices.shape[at + 1 :]:
        return b.op(
            "scatter_along_axis",
            data=x,
            indices=places,
            updates=updates,
            axis=np.int32(at),
            mode=_MODES[reduction],
        )
    grid = np.indices(indices.sizes)
    parts = [
        b.reshape(places, (*places.sizes, 1)) if each == at else constant(grid[each][..., None].astype(np.int32))
        for each in range(x.rank)
    ]
    if x.rank + 1 > 5:
        raise Unsupported("updates of a part of 5 dimensions: Core ML's indices for it have 6")
    where = b.concat(parts, x.rank)
    return b.op("scatter_nd", data=x, indices=where, updates=updates, mode=_MODES[reduction])


@scatter.lowers("ScatterND", since=18)
def scatter_nd(b: Builder, x: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    if x.dtype == "bool":
        return b.cast(scatter_nd(b, b.cast(x, "int32"), indices, b.cast(updates, "int32")), "bool")
    sizes = constant(np.array([x.size(axis) for axis in range(indices.size(-1))], np.int32))
    if indices.array is not None and sizes.array is not None:
        places = constant(np.where(indices.array < 0, indices.array + sizes.array, indices.array))
    else:
        moved = b.op("add", x=indices, y=sizes)
        places = b.select(b.op("less", x=indices, y=b.full(0, indices)), moved, indices)
    return b.op("scatter_nd", data=x, indices=places, updates=updates, mode=_MODES[reduction])


@scatter.lowers("Col2Im", since=18)
def col2im(
    b: Builder,
    x: Tensor,
    image_shape: Tensor,
    block_shape: Tensor,
    *,
    dilations: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Tensor:
    """Columns added at constant places of the image; what falls into the padding goes to a row that is dropped."""
    image, block = integers(image_shape, "the image's shape"), integers(block_shape, "the block's shape")
    places = block_places(image, block, dilations, pads, strides)
    batch, columns, count = x.sizes
    channels, pixels = columns // math.prod(block), math.prod(image)
    rows = b.transpose(b.reshape(x, (batch * channels, math.prod(block) * count)), (1, 0))
    zeros = constant(np.zeros((pixels + 1, batch * channels), x.dtype))
    added = b.op("scatter_nd", data=zeros, indices=constant(places.reshape(-1, 1)), updates=rows, mode="add")
    kept = b.op("slice_by_index", x=added, begin=(0, 0), end=(pixels, batch * channels))
    return b.reshape(b.transpose(kept, (1, 0)), (batch, channels, *image))


@scatter.lowers("TensorScatter", since=24)
def tensor_scatter(
    b: Builder, cache: Tensor, update: Tensor, start: Tensor | None = None, *, axis: int = -2, mode: str = "linear"
) -> Tensor:
    """Rows of each batch written from that batch's own index on, around the end where circular."""
    at = axis % cache.rank
    batch, length, count = cache.size(0), cache.size(at), update.size(at)
    order = [0, at, *(other for other in range(1, cache.rank) if other != at)]
    steps = constant(np.tile(np.arange(count, dtype=np.int32), (batch, 1)))
    places = steps
    if start is not None:
        places = b.op("add", x=b.reshape(start, (batch, 1)), y=steps)
        if mode == "circular":
            places = b.op("mod", x=places, y=b.full(length, places))
    rows = constant(np.broadcast_to(np.arange(batch, dtype=np.int32)[:, None, None], (batch, count, 1)))
    where = b.concat([rows, b.reshape(places, (batch, count, 1))], 2)
    moved, fresh = b.transpose(cache, order), b.transpose(update, order)
    written = b.op("scatter_nd", data=moved, indices=where, updates=fresh, mode="update")
    return b.transpose(written, [order.index(place) for place in range(cache.rank)])
