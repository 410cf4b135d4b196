"""Writing by index: SCATTER_ND adds what meets, the segment kernels multiply or compare it."""

from __future__ import annotations

import math

import numpy as np

from convertkit.errors import UnknownSize, Unsupported
from convertkit.onnx.columns import block_places
from convertkit.onnx.registry import Registry
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.handlers.elementary import accepted, as_accepted, constant_ints, like
from convertkit.targets.tflite.handlers.indexing import (
    coordinate_places,
    element_places,
    flattened,
    rows_of,
    static_shape,
)
from convertkit.targets.tflite.handlers.shapes import cut
from convertkit.targets.tflite.tensor import DYNAMIC, DType, Tensor

scatter = Registry()

_SEGMENTS = {"mul": "UNSORTED_SEGMENT_PROD", "max": "UNSORTED_SEGMENT_MAX", "min": "UNSORTED_SEGMENT_MIN"}
_SEGMENT_TYPES: tuple[DType, ...] = ("float32", "int32")


@scatter.lowers("ScatterElements", since=18)
def scatter_elements(
    b: Builder, x: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none"
) -> Tensor:
    places = element_places(b, x, indices, axis % x.rank)
    flat = written(b, flattened(b, x), flattened(b, places), flattened(b, updates), reduction)
    return shaped_like(b, flat, x)


@scatter.lowers("Scatter", since=11)
def scatter_11(b: Builder, x: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0) -> Tensor:
    return scatter_elements(b, x, indices, updates, axis=axis)


@scatter.lowers("ScatterND", since=18)
def scatter_nd(b: Builder, x: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    places = flattened(b, coordinate_places(b, x, indices))
    rows, depth = indices.rank - 1, indices.shape[-1]
    flat = written(b, rows_of(b, x, depth), places, rows_of(b, updates, rows), reduction)
    return shaped_like(b, flat, x)


def shaped_like(b: Builder, values: Tensor, x: Tensor) -> Tensor:
    """``values`` in the shape of ``x``, which has as many elements."""
    if x.shape.count(DYNAMIC) <= 1:
        return b.reshape(values, x.shape)
    return b.reshape_to(values, b.shape_of(x), x.shape)


def written(b: Builder, x: Tensor, places: Tensor, updates: Tensor, reduction: str) -> Tensor:
    """``x`` of shape (rows, …) with ``updates`` at the rows ``places``, which are not negative."""
    if reduction == "none":
        return _replaced(b, x, places, updates)
    if reduction == "add":
        return _added(b, x, places, updates)
    if reduction not in _SEGMENTS:
        raise Unsupported(f"reduction {reduction}")
    dtype = next((kind for kind in (x.dtype, "int32") if kind in _SEGMENT_TYPES), None)
    if dtype is None or (x.dtype != dtype and x.dtype in ("int64", "uint32", "uint64")):
        raise Unsupported(f"{x.dtype} with reduction {reduction}: TFLite {_SEGMENTS[reduction]} takes float32, int32")
    rows = b.reshape(b.size_of(x, 0), ())
    wide = b.cast(updates, dtype)
    met = b.emit(_SEGMENTS[reduction], (wide, places, rows), x.shape, dtype)
    join = {"mul": b.mul, "max": b.maximum, "min": b.minimum}[reduction]
    # What no update meets is the neutral element: 1, or the end of the type's range, which infinity lies beyond.
    old = b.cast(x, dtype)
    joined = join(old, met)
    if dtype == "float32" and reduction != "mul" and (x.constant is None or np.isinf(x.constant).any()):
        joined = b.select(_met(b, places, wide, rows, x.shape[:1], reduction), joined, old)
    return b.cast(joined, x.dtype)


def _met(b: Builder, places: Tensor, updates: Tensor, rows: Tensor, shape: tuple[int, ...], reduction: str) -> Tensor:
    """Whether an element is met by an update that is not the infinity which every other value beats."""
    start = like(b, updates, -math.inf if reduction == "max" else math.inf)
    counted = b.cast(b.not_equal(updates, start), "int32")
    found = b.emit("UNSORTED_SEGMENT_MAX", (counted, places, rows), (*shape, *updates.shape[1:]), "int32")
    return b.greater(found, like(b, found, 0))


def _added(b: Builder, x: Tensor, places: Tensor, updates: Tensor) -> Tensor:
    dtype = accepted(b, "SCATTER_ND", x.dtype)
    rows = b.reshape(places, (places.shape[0], 1))
    scattered = b.scatter_nd(rows, b.cast(updates, dtype), b.shape_of(x), x.shape)
    wide = as_accepted(b, "ADD", b.cast(x, dtype), scattered)
    return b.cast(b.add(*wide), x.dtype)


def _replaced(b: Builder, x: Tensor, places: Tensor, updates: Tensor) -> Tensor:
    """Rows chosen among the updates and the old ones; of several updates of a row the last one stays."""
    dtype = accepted(b, "GATHER", x.dtype)
    both = b.concatenation([b.cast(updates, dtype), b.cast(x, dtype)], 0)
    return b.cast(b.gather(both, _rows_of_both(b, x, places), 0), x.dtype)


def _rows_of_both(b: Builder, x: Tensor, places: Tensor) -> Tensor:
    """For every row of ``x`` the number of the last update of it, else its own number, counted behind the updates."""
    count, rows = places.shape[0], x.shape[0]
    if places.constant is not None and rows != DYNAMIC:
        chosen = np.arange(count, count + rows, dtype=np.int32)
        for number, place in enumerate(places.constant):  # NumPy leaves open which of equal places wins
            chosen[place] = number
        return b.constant(chosen)
    last = b.emit("UNSORTED_SEGMENT_MAX", (_numbers(b, places), places, _scalar(b, x)), (rows,), "int32")
    if DYNAMIC in (count, rows):
        own = b.add(_numbers(b, x), b.size_of(places, 0))
    else:
        own = b.constant(np.arange(count, count + rows, dtype=np.int32))
    return b.select(b.less(last, like(b, last, 0)), own, last)


def _numbers(b: Builder, x: Tensor) -> Tensor:
    """0, 1, …: one for each row."""
    if x.shape[0] != DYNAMIC:
        return b.constant(np.arange(x.shape[0], dtype=np.int32))
    start, one = (b.constant(np.array(number, np.int32)) for number in (0, 1))
    return b.range(start, _scalar(b, x), one, DYNAMIC)


def _scalar(b: Builder, x: Tensor) -> Tensor:
    return b.reshape(b.size_of(x, 0), ())


@scatter.lowers("TensorScatter", since=24)
def tensor_scatter(
    b: Builder, cache: Tensor, update: Tensor, start: Tensor | None = None, *, axis: int = -2, mode: str = "linear"
) -> Tensor:
    """Rows of each batch written from that batch's own index on, around the end where circular."""
    static_shape(cache, "TensorScatter")
    axis %= cache.rank
    length, count, batch = cache.shape[axis], update.shape[axis], cache.shape[0]
    if batch == 1 and mode == "linear" and DYNAMIC not in update.shape:
        return _written_in_place(b, cache, update, start, axis)
    order = [0, axis, *(other for other in range(1, cache.rank) if other != axis)]
    moved, rows = b.transpose(cache, order), b.transpose(update, order)
    steps = b.constant(np.arange(count, dtype=np.int32)[None])
    places = steps if start is None else b.add(b.reshape(b.cast(start, "int32"), (batch, 1)), steps)
    if mode == "circular" and start is not None:
        places = b.floor_mod(places, like(b, places, length))
    places = b.add(places, b.constant((np.arange(batch, dtype=np.int32) * length)[:, None]))
    rest = math.prod(moved.shape[2:])
    flat = written(
        b,
        b.reshape(moved, (batch * length, rest)),
        b.reshape(places, (batch * count,)),
        b.reshape(rows, (batch * count, rest)),
        "none",
    )
    inverse = [order.index(place) for place in range(cache.rank)]
    return b.transpose(b.reshape(flat, moved.shape), inverse)


def _written_in_place(b: Builder, cache: Tensor, update: Tensor, start: Tensor | None, axis: int) -> Tensor:
    """Rows of the only batch, by the one kernel that writes them where the cache lies."""
    zero = b.constant(np.zeros(1, np.int32))
    first = zero if start is None else b.reshape(b.cast(start, "int32"), (1,))
    places = [first if place == axis else zero for place in range(cache.rank)]
    return b.dynamic_update_slice(cache, update, b.concatenation(places, 0))


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
    image, block = constant_ints(image_shape, "the image's shape"), constant_ints(block_shape, "the block's shape")
    places = block_places(image, block, dilations, pads, strides)
    batch, columns, count = x.shape
    if DYNAMIC in (columns, count):
        raise UnknownSize("Col2Im of channels or columns whose number is only known at run time")
    channels, pixels = columns // math.prod(block), math.prod(image)
    split = b.reshape(x, (DYNAMIC if batch == DYNAMIC else batch * channels, math.prod(block) * count))
    rows = b.transpose(split, (1, 0))
    sizes = b.sizes((pixels + 1, b.size_of(rows, 1)))
    added = b.scatter_nd(b.constant(places.reshape(-1, 1)), rows, sizes, (pixels + 1, rows.shape[1]))
    kept = cut(b, added, [slice(0, pixels), slice(None)])
    return b.reshape(b.transpose(kept, (1, 0)), (batch, channels, *image))
