"""Reading by index.

Everything becomes GATHER with int32 places: coordinates are turned into places of a flattened tensor, so
that negative indices, batches and partial coordinates need no kernels of their own.
"""

from __future__ import annotations

import math

import numpy as np

from convertkit.errors import Unsupported
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
        raise Unsupported(f"{what} of sizes that are only known at run time")
    return x.shape


@indexing.lowers("Gather", since=13)
def gather(b: Builder, x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    axis %= x.rank
    if x.shape[axis] != DYNAMIC:
        return gathered(b, x, nonnegative(b, indices, x.shape[axis]), axis)
    narrow = b.cast(indices, "int32")
    size = b.size_of(x, axis)
    turned = b.select(b.less(narrow, like(b, narrow, 0)), b.add(narrow, b.reshape(size, ())), narrow)
    return gathered(b, x, turned, axis)


@indexing.lowers("GatherElements", since=13)
def gather_elements(b: Builder, x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    axis %= x.rank
    if DYNAMIC in x.shape:
        return _elements_of_rows(b, x, indices, axis)
    places = element_places(b, x.shape, indices, axis)
    return gathered(b, b.reshape(x, (x.size,)), places, 0)


def _elements_of_rows(b: Builder, x: Tensor, indices: Tensor, axis: int) -> Tensor:
    """A free batch in front: GATHER reads each batch apart, from rows flattened behind it."""
    inner, wanted = x.shape[1:], indices.shape[1:]
    if axis == 0 or x.shape[0] != DYNAMIC or indices.shape[0] != DYNAMIC or DYNAMIC in (*inner, *wanted):
        raise Unsupported("GatherElements of sizes that are only known at run time, other than a batch in front")
    places = element_places(b, (1, *inner), indices, axis, batched=True)
    count = math.prod(inner)
    (wide,) = as_accepted(b, "GATHER", b.reshape(x, (DYNAMIC, count)))
    found = b.gather(wide, b.reshape(places, (DYNAMIC, math.prod(wanted))), 1, batch_dims=1)
    return b.cast(b.reshape(found, (DYNAMIC, *wanted)), x.dtype)


def element_places(b: Builder, shape: tuple[int, ...], indices: Tensor, axis: int, *, batched: bool = False) -> Tensor:
    """Places in the flattened tensor of ``shape`` that differ from their own only along ``axis``.

    ``batched``: the first axis counts as if it had one element, whatever its size.
    """
    sizes = (1, *indices.shape[1:]) if batched else static_shape(indices, "indices")
    turned = nonnegative(b, indices, shape[axis])
    strides = _strides(shape)
    own = np.zeros(sizes, np.int32)
    for other, count in enumerate(sizes):
        if other != axis:
            view = [1] * len(shape)
            view[other] = count
            own = own + (np.arange(count) * strides[other]).reshape(view).astype(np.int32)
    scaled = turned if strides[axis] == 1 else _times(b, turned, strides[axis])
    return _plus(b, scaled, b.constant(own)) if own.any() else scaled


@indexing.lowers("GatherND", since=13)
def gather_nd(b: Builder, x: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Tensor:
    depth = batch_dims + indices.shape[-1]
    if not batch_dims and DYNAMIC not in (*x.shape[:depth], indices.shape[-1]):
        rows = b.reshape(x, (math.prod(x.shape[:depth]), *x.shape[depth:]))
        return gathered(b, rows, coordinate_places(b, x.shape, indices), 0)
    static_shape(indices, "indices")
    shape = static_shape(x, "GatherND")
    places = coordinate_places(b, shape, indices, batch_dims)
    rows = b.reshape(x, (math.prod(shape[:depth]), *shape[depth:]))
    return gathered(b, rows, places, 0)


def coordinate_places(b: Builder, shape: tuple[int, ...], indices: Tensor, batch_dims: int = 0) -> Tensor:
    """Places in the tensor of ``shape`` flattened over the axes that the coordinates span, whose sizes are known."""
    depth = indices.shape[-1]
    spanned = shape[: batch_dims + depth]
    strides = _strides(spanned)[batch_dims:]
    sizes = np.array(spanned[batch_dims:], np.int32)
    if indices.constant is not None:
        turned = b.constant(np.where(indices.constant < 0, indices.constant + sizes, indices.constant).astype(np.int32))
    else:
        narrow = b.cast(indices, "int32")
        turned = b.select(b.less(narrow, like(b, narrow, 0)), b.add(narrow, b.constant(sizes)), narrow)
    if turned.constant is not None:
        places = b.constant((turned.constant * np.array(strides)).sum(-1).astype(np.int32))
    else:
        scaled = b.mul(turned, b.constant(np.array(strides, np.int32)))
        places = b.sum(scaled, (scaled.rank - 1,), keep_dims=False)
    if not batch_dims:
        return places
    batches = np.arange(math.prod(shape[:batch_dims])) * math.prod(spanned[batch_dims:])
    view = (*shape[:batch_dims], *(1,) * (places.rank - batch_dims))
    return _plus(b, places, b.constant(batches.reshape(view).astype(np.int32)))


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _times(b: Builder, x: Tensor, factor: int) -> Tensor:
    return b.constant(x.constant * np.int32(factor)) if x.constant is not None else b.mul(x, like(b, x, factor))


def _plus(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    if x.constant is not None and y.constant is not None:
        return b.constant((x.constant + y.constant).astype(np.int32))
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
