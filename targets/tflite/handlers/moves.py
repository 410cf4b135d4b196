"""Operators that only move data."""

from __future__ import annotations

import numpy as np

from convertkit.errors import UnknownSize, Unsupported
from convertkit.onnx.registry import Registry
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.handlers.shapes import rank_of
from convertkit.targets.tflite.tensor import DYNAMIC, Tensor

moves = Registry()


@moves.lowers("Identity", since=(16, 19, 21, 23, 24, 25))
def identity(b: Builder, x: Tensor) -> Tensor:
    return x


@moves.lowers("Reshape", since=(14, 19, 21, 23, 24, 25))
def reshape(b: Builder, x: Tensor, shape: Tensor, *, allowzero: int = 0) -> Tensor:
    """RESHAPE; a zero copies the input's size, unless ``allowzero``."""
    if shape.constant is None:
        rank, sizes = rank_of(shape), b.cast(shape, "int32")
        if not allowzero and _may_hold_zeros(b, shape):
            sizes = _copied_where_zero(b, x, sizes)
        return b.reshape_to(x, sizes, (DYNAMIC,) * rank)
    wanted = [int(size) for size in shape.constant]
    if not allowzero:
        wanted = [x.shape[axis] if size == 0 else size for axis, size in enumerate(wanted)]
    if wanted.count(DYNAMIC) > 1:
        parts = [b.size_of(x, axis) if size == 0 else size for axis, size in enumerate(shape.constant.tolist())]
        return b.reshape_to(x, b.sizes(parts), tuple(wanted))
    return b.reshape(x, wanted)


def _may_hold_zeros(b: Builder, shape: Tensor) -> bool:
    """Whether a zero that copies may be among sizes; sizes of tensors, joined, are zero for empty ones only."""
    producer = b.producer(shape)
    while producer is not None and producer.code == "CAST":
        producer = b.producer(producer.inputs[0]) if producer.inputs[0] is not None else None
    if producer is None or producer.code not in ("CONCATENATION", "PACK"):
        return True
    parts = [part.constant for part in producer.inputs if part is not None and part.constant is not None]
    return any(bool((part == 0).any()) for part in parts)


def _copied_where_zero(b: Builder, x: Tensor, sizes: Tensor) -> Tensor:
    missing = max(sizes.shape[0] - x.rank, 0)
    own = b.concatenation([b.shape_of(x), b.ints([1] * missing)], 0) if missing else b.shape_of(x)
    if x.rank > sizes.shape[0]:
        own = b.slice(own, [0], [sizes.shape[0]])
    return b.select(b.equal(sizes, b.ints([0])), own, sizes)


@moves.lowers("Flatten", since=(13, 21, 23, 24, 25))
def flatten(b: Builder, x: Tensor, *, axis: int = 1) -> Tensor:
    axis = axis % x.rank if axis != x.rank else axis
    sides = [x.shape[:axis], x.shape[axis:]]
    known = [DYNAMIC if DYNAMIC in side else int(np.prod(side)) for side in sides]
    if known.count(DYNAMIC) > 1:
        raise UnknownSize("both sides of the flattened shape are only known at run time")
    return b.reshape(x, known)


@moves.lowers("Transpose", since=(13, 21, 23, 24, 25))
def transpose(b: Builder, x: Tensor, *, perm: tuple[int, ...] | None = None) -> Tensor:
    return b.transpose(x, perm if perm is not None else range(x.rank)[::-1])


@moves.lowers("Squeeze", since=(13, 21, 23, 24, 25))
def squeeze(b: Builder, x: Tensor, axes: Tensor | None = None) -> Tensor:
    if axes is None:
        return b.squeeze(x, [axis for axis, size in enumerate(x.shape) if size == 1])
    if axes.constant is None:
        raise Unsupported("axes that are computed")
    return b.squeeze(x, [int(axis) % x.rank for axis in axes.constant.reshape(-1)])


@moves.lowers("Unsqueeze", since=(13, 21, 23, 24, 25))
def unsqueeze(b: Builder, x: Tensor, axes: Tensor) -> Tensor:
    if axes.constant is None:
        raise Unsupported("axes that are computed")
    rank = x.rank + axes.constant.size
    for axis in sorted(int(axis) % rank for axis in axes.constant.reshape(-1)):
        x = b.expand_dims(x, axis)
    return x


@moves.lowers("Concat", since=13)
def concat(b: Builder, *inputs: Tensor, axis: int) -> Tensor:
    return b.concatenation(inputs, axis)
