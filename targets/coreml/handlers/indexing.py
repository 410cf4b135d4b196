"""ONNX operators that pick elements by index, as MIL."""

from __future__ import annotations

import numpy as np

from convertkit.errors import Unsupported
from convertkit.onnx.registry import Registry
from convertkit.targets.coreml.builder import Builder
from convertkit.targets.coreml.handlers.operands import known
from convertkit.targets.coreml.tensor import Tensor, constant

indexing = Registry()


def from_front(b: Builder, indices: Tensor, size: int | None, x: Tensor, axis: int) -> Tensor:
    """Negative indices counted from the front: not every unit of Core ML counts from behind."""
    if indices.array is not None and size is not None:
        return constant(np.where(indices.array < 0, indices.array + size, indices.array))
    if size is not None:
        count = constant(np.array(size, np.int32))
    else:
        count = b.reshape(b.op("slice_by_index", x=b.sizes_of(x), begin=(axis,), end=(axis + 1,)), ())
    moved = b.op("add", x=indices, y=count)
    return b.select(b.op("less", x=indices, y=b.full(0, indices)), moved, indices)


@indexing.lowers("Gather", since=13)
def gather(b: Builder, x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    """Booleans as integers, which are all that MIL gathers; an index of one element as a slice."""
    if x.dtype == "bool":
        return b.cast(gather(b, b.cast(x, "int32"), indices, axis=axis), "bool")
    at = axis % x.rank
    places = from_front(b, indices, x.shape[at], x, at)
    if x.rank + indices.rank - 1 > 5:
        raise Unsupported(f"{x.rank + indices.rank - 1} dimensions: Core ML's tensors have at most 5")
    return b.op("gather", x=x, indices=places, axis=np.int32(at))


@indexing.lowers("GatherElements", since=13)
def gather_elements(b: Builder, x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    """MIL wants every other axis as large as that of ``x``: what is not read is cut off first."""
    if x.dtype == "bool":
        return b.cast(gather_elements(b, b.cast(x, "int32"), indices, axis=axis), "bool")
    at = axis % x.rank
    places = from_front(b, indices, x.shape[at], x, at)
    if x.shape[:at] + x.shape[at + 1 :] != indices.shape[:at] + indices.shape[at + 1 :]:
        ends = tuple(0 if each == at else indices.size(each) for each in range(x.rank))
        mask = tuple(each == at for each in range(x.rank))
        x = b.op("slice_by_index", x=x, begin=(0,) * x.rank, end=ends, end_mask=mask)
    return b.op("gather_along_axis", x=x, indices=places, axis=np.int32(at))


@indexing.lowers("GatherND", since=13)
def gather_nd(b: Builder, x: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Tensor:
    if x.dtype == "bool":
        return b.cast(gather_nd(b, b.cast(x, "int32"), indices, batch_dims=batch_dims), "bool")
    depth = indices.size(-1)
    sizes = np.array([x.size(batch_dims + axis) for axis in range(depth)], np.int32)
    if indices.array is not None:
        places = constant(np.where(indices.array < 0, indices.array + sizes, indices.array))
    else:
        moved = b.op("add", x=indices, y=constant(sizes))
        places = b.select(b.op("less", x=indices, y=b.full(0, indices)), moved, indices)
    return b.op("gather_nd", x=x, indices=places, batch_dims=np.int32(batch_dims))


@indexing.lowers("OneHot", since=(11, 28))
def one_hot(b: Builder, indices: Tensor, depth: Tensor, values: Tensor, *, axis: int = -1) -> Tensor:
    """A comparison with every place and a selection; an index outside of the depth has no place."""
    count = int(known(depth, "depth").reshape(()))
    off, on = known(values, "values")
    rank = indices.rank + 1
    at = axis % rank
    view = [1] * rank
    view[at] = count
    whole = b.cast(indices, "int32") if not indices.is_float else b.cast(b.op("floor", x=indices), "int32")
    below = b.op("less", x=whole, y=b.full(0, whole))
    places = b.select(below, b.op("add", x=whole, y=b.full(count, whole)), whole)
    spread = b.op("expand_dims", x=places, axes=(at,))
    hit = b.op("equal", x=spread, y=constant(np.arange(count, dtype=np.int32).reshape(view)))
    if on.dtype == bool:
        return hit if on and not off else b.op("logical_not", x=hit)
    return b.select(hit, constant(np.asarray(on)), constant(np.asarray(off)))


@indexing.lowers("TopK", since=(11, 24))
def top_k(
    b: Builder,
    x: Tensor,
    k: Tensor,
    *,
    axis: int = -1,
    largest: int = 1,
    sorted: int = 1,
) -> tuple[Tensor, ...]:
    count = int(known(k, "k").reshape(()))
    return b.ops("topk", x=x, k=np.int32(count), axis=np.int32(axis % x.rank), ascending=not largest, sort=True)


@indexing.lowers("NonZero", since=13)
def non_zero(b: Builder, x: Tensor) -> Tensor:
    """MIL has a row for each element, ONNX a column."""
    return b.transpose(b.op("non_zero", x=b.cast(x, "int32") if x.dtype == "bool" else x), (1, 0))


@indexing.lowers("Compress", since=(11, 28))
def compress(b: Builder, x: Tensor, condition: Tensor, *, axis: int | None = None) -> Tensor:
    """The places of a condition that is known, or that MIL finds when the model runs."""
    if x.dtype == "bool":
        return b.cast(compress(b, b.cast(x, "int32"), condition, axis=axis), "bool")
    if condition.array is not None:
        kept = constant(np.flatnonzero(condition.array).astype(np.int32))
    else:
        kept = b.op("squeeze", x=b.op("non_zero", x=b.cast(condition, "int32")), axes=(1,))
    if axis is None:
        x, axis = b.reshape(x, (-1,)), 0
    return b.op("gather", x=x, indices=kept, axis=np.int32(axis % x.rank))


@indexing.lowers("ReverseSequence", since=(10, 28))
def reverse_sequence(b: Builder, x: Tensor, lengths: Tensor, *, batch_axis: int = 1, time_axis: int = 0) -> Tensor:
    return b.op(
        "reverse_sequence",
        x=x,
        lengths=lengths,
        seq_axis=np.int32(time_axis % x.rank),
        batch_axis=np.int32(batch_axis % x.rank),
    )
