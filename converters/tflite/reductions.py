"""Reductions over axes, running sums and the places of extremes.

Source: ``tensorflow/lite/kernels/{reduce,arg_min_max,cumsum,topk_v2}.cc``.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from convertkit.converters.tflite.builder import Builder, Tensor
from convertkit.converters.tflite.registry import Registry
from convertkit.errors import Unsupported

reductions = Registry()


def _reduce(b: Builder, name: str, x: Tensor, axes: Tensor, keep_dims: bool) -> Tensor:
    """Constant axes are mapped through a transposition in front, so that this one can cancel."""
    if axes.const is None:
        return b.op(name, [x, b.cast(axes, "int64")], {"keepdims": int(keep_dims), "noop_with_empty_axes": 1})
    if not axes.integers:
        return x
    places = tuple(axis % x.rank for axis in axes.integers)
    moved = b.moved(x)
    if moved is None:
        return b.op(name, [x, b.constant(places)], {"keepdims": int(keep_dims)})
    source, perm = moved
    kept = b.transpose(b.op(name, [source, b.constant([perm[place] for place in places])], {"keepdims": 1}), perm)
    return kept if keep_dims else b.op("Squeeze", [kept, b.constant(places)])


@reductions.reads("MEAN", "ReducerOptions")
def mean(b: Builder, x: Tensor, axes: Tensor, *, keep_dims: bool) -> Tensor:
    return _reduce(b, "ReduceMean", x, axes, keep_dims)


@reductions.reads("SUM", "ReducerOptions")
def total(b: Builder, x: Tensor, axes: Tensor, *, keep_dims: bool) -> Tensor:
    return _reduce(b, "ReduceSum", x, axes, keep_dims)


@reductions.reads("REDUCE_PROD", "ReducerOptions")
def product(b: Builder, x: Tensor, axes: Tensor, *, keep_dims: bool) -> Tensor:
    return _reduce(b, "ReduceProd", x, axes, keep_dims)


@reductions.reads("REDUCE_MAX", "ReducerOptions")
def largest(b: Builder, x: Tensor, axes: Tensor, *, keep_dims: bool) -> Tensor:
    return _reduce(b, "ReduceMax", x, axes, keep_dims)


@reductions.reads("REDUCE_MIN", "ReducerOptions")
def smallest(b: Builder, x: Tensor, axes: Tensor, *, keep_dims: bool) -> Tensor:
    return _reduce(b, "ReduceMin", x, axes, keep_dims)


@reductions.reads("REDUCE_ANY", "ReducerOptions")
def any_of(b: Builder, x: Tensor, axes: Tensor, *, keep_dims: bool) -> Tensor:
    return b.cast(_reduce(b, "ReduceMax", b.cast(x, "int32"), axes, keep_dims), "bool")


@reductions.reads("REDUCE_ALL", "ReducerOptions")
def all_of(b: Builder, x: Tensor, axes: Tensor, *, keep_dims: bool) -> Tensor:
    return b.cast(_reduce(b, "ReduceMin", b.cast(x, "int32"), axes, keep_dims), "bool")


@reductions.reads("ARG_MAX", "ArgMaxOptions")
def arg_max(b: Builder, x: Tensor, axis: Tensor, *, output_type: int) -> Tensor:
    """The first of several; the importer casts to the declared index type."""
    return b.op("ArgMax", [x], {"axis": axis.integers[0], "keepdims": 0}, dtype="int64")


@reductions.reads("ARG_MIN", "ArgMinOptions")
def arg_min(b: Builder, x: Tensor, axis: Tensor, *, output_type: int) -> Tensor:
    return b.op("ArgMin", [x], {"axis": axis.integers[0], "keepdims": 0}, dtype="int64")


@reductions.reads("TOPK_V2", moves=True)
def top_k(b: Builder, x: Tensor, k: Tensor) -> tuple[Tensor, ...]:
    """Of the last axis, largest first, the lower index first among equals."""
    count = b.op("Reshape", [b.cast(k, "int64"), b.constant([1])])
    values, places = b.ops("TopK", [x, count], {"axis": -1, "largest": 1, "sorted": 1}, 2)
    return values, replace(places, dtype="int64")


@reductions.reads("CUMSUM", "CumsumOptions")
def cumsum(b: Builder, x: Tensor, axis: Tensor, *, exclusive: bool, reverse: bool) -> Tensor:
    place = b.op("Reshape", [axis, b.constant([])]) if axis.const is None else b.constant(axis.known.reshape(()))
    return b.op("CumSum", [x, place], {"exclusive": int(exclusive), "reverse": int(reverse)})


@reductions.reads("SEGMENT_SUM")
def segment_sum(b: Builder, x: Tensor, segments: Tensor) -> Tensor:
    """Rows added up by segment, where the segments are known."""
    ids = segments.integers
    if list(ids) != sorted(ids) or (ids and ids[0] < 0):
        raise Unsupported("segments out of order")
    rows = b.op("Shape", [x], {"start": 1}, dtype="int64")
    shape = b.op("Concat", [b.constant([ids[-1] + 1 if ids else 0]), rows], {"axis": 0})
    zeros = b.op("Expand", [b.scalar(0, x), shape])
    return b.op("ScatterND", [zeros, b.constant(np.array(ids, np.int64).reshape(-1, 1)), x], {"reduction": "add"})
