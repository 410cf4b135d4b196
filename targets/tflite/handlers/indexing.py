"""Reading by index.

Everything becomes GATHER with int32 places: coordinates are turned into places of a flattened tensor, so
that negative indices, batches and partial coordinates need no kernels of their own.
"""

from __future__ import annotations

import math

import numpy as np

from convertkit.errors import UnknownSize
from convertkit.onnx.registry import Registry
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.handlers.elementary import (
    as_accepted,
    constant_ints,
    constant_of,
    float_only,
    like,
    nonnegative,
)
from convertkit.targets.tflite.tensor import DYNAMIC, Tensor

indexing = Registry()


def gathered(b: Builder, x: Tensor, places: Tensor, axis: int) -> Tensor:
    """GATHER in a type that the kernel takes."""
    (wide,) = as_accepted(b, "GATHER", x)
    result = b.gather(wide, places, axis)
    return result if wide is x else b.cast(result, x.dtype)


def static_shape(x: Tensor, what: str, *, but_batch: bool = False) -> tuple[int, ...]:
    """The shape of ``x``; a refusal where a size, other than the first ``but_batch``, is only known at run time."""
    if DYNAMIC in x.shape[int(but_batch) :]:
        raise UnknownSize(f"{what} of sizes that are only known at run time")
    return x.shape


@indexing.lowers("Gather", since=13)
def gather(b: Builder, x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    axis %= x.rank
    if b.program.portable and indices.constant is not None and indices.constant.size == 1:
        return _element(b, x, int(indices.constant.item()), indices.rank, axis)
    return gathered(b, x, counted_from_start(b, indices, b.size_of(x, axis)), axis)


def _element(b: Builder, x: Tensor, place: int, rank: int, axis: int) -> Tensor:
    """One place along ``axis``, with ``rank`` axes of one element instead: NPUs slice, and do not gather."""
    if place < 0 and x.shape[axis] == DYNAMIC:
        return gathered(b, x, counted_from_start(b, b.constant(np.full((1,) * rank, place)), b.size_of(x, axis)), axis)
    begin, size = [0] * x.rank, list(x.shape)
    begin[axis], size[axis] = place + (x.shape[axis] if place < 0 else 0), 1
    part = b.slice(x, begin, size)
    if rank == 0:
        return b.squeeze(part, (axis,))
    return part if rank == 1 else b.reshape(part, (*part.shape[:axis], *[1] * rank, *part.shape[axis + 1 :]))


@indexing.lowers("GatherElements", since=13)
def gather_elements(b: Builder, x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    places = element_places(b, x, indices, axis % x.rank)
    return gathered(b, flattened(b, x), places, 0)


def flattened(b: Builder, x: Tensor) -> Tensor:
    """``x`` as a vector."""
    return b.reshape(x, (x.size if x.is_static else DYNAMIC,))


def element_places(b: Builder, x: Tensor, indices: Tensor, axis: int) -> Tensor:
    """Places in the flattened ``x`` that differ from their own only along ``axis``; sizes may be known at run time."""
    strides = strides_of(b, x)
    own: Tensor = b.ints([0])
    for other in _free_last(indices):
        if other != axis and indices.shape[other] != 1:
            own = _plus(b, own, _times(b, places_along(b, indices, other), strides[other]))
    return _plus(b, _times(b, counted_from_start(b, indices, b.size_of(x, axis)), strides[axis]), own)


def _free_last(x: Tensor) -> list[int]:
    """Axes of known size first: what they add up to is one constant."""
    return sorted(range(x.rank), key=lambda axis: x.shape[axis] == DYNAMIC)


def places_along(b: Builder, x: Tensor, axis: int) -> Tensor:
    """``0, 1, …`` along ``axis`` of ``x``, with that tensor's rank."""
    size = x.shape[axis]
    if size == DYNAMIC:
        limit = b.reshape(b.size_of(x, axis), ())
        steps = b.range(b.constant(np.array(0, np.int32)), limit, b.constant(np.array(1, np.int32)), DYNAMIC)
    else:
        steps = b.constant(np.arange(size, dtype=np.int32))
    return b.reshape(steps, _view(x, axis, size))


def _view(x: Tensor, axis: int, size: int) -> tuple[int, ...]:
    """The shape with which a vector lies along ``axis`` of ``x``."""
    return tuple(size if place == axis else 1 for place in range(x.rank))


def counted_from_start(b: Builder, indices: Tensor, size: Tensor) -> Tensor:
    """Indices that count from the end where negative, as int32 from the start, of an axis of ``size`` elements."""
    if size.constant is not None:
        return nonnegative(b, indices, int(size.constant.item()))
    narrow = b.cast(indices, "int32")
    return b.select(b.less(narrow, like(b, narrow, 0)), b.add(narrow, b.reshape(size, ())), narrow)


def strides_of(b: Builder, x: Tensor, depth: int | None = None) -> list[Tensor]:
    """What one step along each of the first ``depth`` axes is, in steps of the last of them.

    int32 vectors of one element: constants where known.
    """
    strides = [b.ints([1])]
    for axis in range((x.rank if depth is None else depth) - 1, 0, -1):
        strides.insert(0, _times(b, strides[0], b.size_of(x, axis)))
    return strides


@indexing.lowers("GatherND", since=13)
def gather_nd(b: Builder, x: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Tensor:
    if batch_dims and _depth(indices) == 1:  # GATHER has batches itself: no size is read at run time
        single = b.squeeze(indices, (indices.rank - 1,))
        (wide,) = as_accepted(b, "GATHER", x)
        result = b.gather(wide, counted_from_start(b, single, b.size_of(x, batch_dims)), batch_dims, batch_dims)
        return result if wide is x else b.cast(result, x.dtype)
    places = coordinate_places(b, x, indices, batch_dims)
    if indices.rank == 1:  # one place: what is added up there keeps its axis
        places = b.reshape(places, ())
    return gathered(b, rows_of(b, x, batch_dims + _depth(indices)), places, 0)


def rows_of(b: Builder, x: Tensor, depth: int) -> Tensor:
    """``x`` with its first ``depth`` axes as one."""
    spanned, rest = x.shape[:depth], x.shape[depth:]
    count = DYNAMIC if DYNAMIC in spanned else math.prod(spanned)
    shape = (count, *rest)
    if shape.count(DYNAMIC) <= 1:
        return b.reshape(x, shape)
    kept = [b.size_of(x, axis) for axis in range(depth, x.rank)]
    return b.reshape_to(x, b.sizes([DYNAMIC, *kept]), shape)


def _depth(indices: Tensor) -> int:
    if indices.shape[-1] == DYNAMIC:
        raise UnknownSize("coordinates whose number is only known at run time")
    return indices.shape[-1]


def coordinate_places(b: Builder, x: Tensor, indices: Tensor, batch_dims: int = 0) -> Tensor:
    """Places in ``x`` with the axes that batches and coordinates span as one; sizes may be known at run time."""
    depth = batch_dims + _depth(indices)
    strides = strides_of(b, x, depth)
    sizes = b.sizes([b.size_of(x, axis) for axis in range(batch_dims, depth)])
    turned = _turned(b, indices, sizes)
    places = _summed(b, _times(b, turned, b.sizes(strides[batch_dims:])))
    own: Tensor = b.ints([0])
    for axis in _free_last(indices):
        if axis < batch_dims:
            steps = b.reshape(places_along(b, indices, axis), _view(places, axis, indices.shape[axis]))
            own = _plus(b, own, _times(b, steps, strides[axis]))
    return _plus(b, places, own)


def _turned(b: Builder, coordinates: Tensor, sizes: Tensor) -> Tensor:
    """Coordinates that count from the end where negative, as int32 from the start."""
    if coordinates.constant is not None and sizes.constant is not None:
        values = coordinates.constant.astype(np.int64)
        return b.constant(np.where(values < 0, values + sizes.constant, values).astype(np.int32))
    narrow = b.cast(coordinates, "int32")
    return b.select(b.less(narrow, like(b, narrow, 0)), b.add(narrow, sizes), narrow)


def _summed(b: Builder, x: Tensor) -> Tensor:
    """The sum over the last axis."""
    if x.constant is not None:
        return b.constant(x.constant.sum(-1).astype(np.int32))
    return b.sum(x, (x.rank - 1,), keep_dims=False)


def _times(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    for one, other in ((x, y), (y, x)):
        if one.constant is not None and one.shape == (1,) and one.constant.item() == 1:
            return other
    if x.constant is not None and y.constant is not None:
        return b.constant((x.constant * y.constant).astype(np.int32))
    return b.mul(x, y)


def _plus(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    if x.constant is not None and y.constant is not None:
        return b.constant((x.constant + y.constant).astype(np.int32))
    for one, other in ((x, y), (y, x)):
        if one.constant is not None and one.shape == (1,) and one.constant.item() == 0:
            return other
    return b.add(x, y)


@indexing.lowers("OneHot", since=(11, 28))
def one_hot(b: Builder, indices: Tensor, depth: Tensor, values: Tensor, *, axis: int = -1) -> Tensor:
    """ONE_HOT; an index counts from the end where negative, and marks nothing where out of range."""
    count = int(constant_of(depth, "the depth").item())
    narrow = b.cast(indices, "int32")
    turned = b.select(b.less(narrow, like(b, narrow, 0)), b.add(narrow, like(b, narrow, count)), narrow)
    (wide,) = as_accepted(b, "ONE_HOT", values)
    off, on = (b.reshape(b.slice(wide, (place,), (1,)), ()) for place in (0, 1))
    size = b.constant(np.array(count, np.int32))
    hot = b.one_hot(turned, size, on, off, axis if axis >= 0 else axis % (indices.rank + 1))
    return b.cast(hot, values.dtype)


@indexing.lowers("Compress", since=(11, 28))
def compress(b: Builder, x: Tensor, condition: Tensor, *, axis: int | None = None) -> Tensor:
    """The places where the condition holds, gathered; how many is known at run time."""
    if axis is None:
        x, axis = b.reshape(x, (x.size if x.is_static else DYNAMIC,)), 0
    found = b.where(condition)
    places = b.cast(b.reshape(found, (DYNAMIC,)), "int32")
    return gathered(b, x, places, axis % x.rank)


@indexing.lowers("NonZero", since=13)
def non_zero(b: Builder, x: Tensor) -> Tensor:
    """WHERE gives one row for each place, ONNX one column."""
    condition = x
    if x.dtype != "bool":
        (wide,) = as_accepted(b, "NOT_EQUAL", x)
        condition = b.not_equal(wide, like(b, wide, 0))
    return b.transpose(b.where(condition), (1, 0))


@indexing.lowers("MaxUnpool", since=(11, 22))
def max_unpool(
    b: Builder,
    x: Tensor,
    indices: Tensor,
    sizes: Tensor | None = None,
    *,
    kernel_shape: tuple[int, ...],
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Tensor:
    """Values at the flat places that MaxPool gave, zero elsewhere; ``sizes`` adds zeros behind each axis."""
    float_only(x, "MaxUnpool")
    rank = len(kernel_shape)
    steps, sides = strides or (1,) * rank, pads or (0,) * (2 * rank)
    inner = [
        (size - 1) * step + kernel - sides[axis] - sides[axis + rank]
        for axis, (size, step, kernel) in enumerate(zip(x.shape[2:], steps, kernel_shape, strict=True))
    ]
    shape = (*static_shape(x, "MaxUnpool")[:2], *inner)
    places = b.reshape(b.cast(indices, "int32"), (x.size, 1))
    flat = b.scatter_nd(places, b.reshape(x, (x.size,)), b.ints((math.prod(shape),)), (math.prod(shape),))
    wanted = shape if sizes is None else constant_ints(sizes, "the output shape")
    grown = [(0, target - size) for target, size in zip(wanted, shape, strict=True)]
    return b.pad(b.reshape(flat, shape), grown)
