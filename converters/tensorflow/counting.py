"""Scattered sums, counts, ranks and norms that tf2onnx lacks or gets wrong, registered with it.

Imports tf2onnx, and with it TensorFlow, therefore only ever imported in a worker process.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from convertkit.artifact import Array
from convertkit.converters.tensorflow.compat import tf_op
from convertkit.converters.tensorflow.forms import BOOL, FLOAT, INT32, INT64, Form


@tf_op("ScatterNd")
class ScatterNd:
    """A sum of what falls on the same place; tf2onnx keeps the last of it."""

    @classmethod
    def version_16(cls, ctx: Any, node: Any, **_: Any) -> None:
        f = Form(ctx, node)
        places, updates, shape = node.input
        number = INT32 if f.dtype(1) == BOOL else f.dtype(1)
        zero = f.constant(0, np.int32) if number == INT32 else f.like(0, 1)
        blank = f.op("Expand", zero, f.cast(shape, INT64))
        updates = f.cast(updates, number) if number != f.dtype(1) else updates
        found = f.op("ScatterND", blank, f.cast(places, INT64), updates, reduction="add")
        f.end(f.cast(found, BOOL) if f.dtype(1) == BOOL else found)


@tf_op("InvertPermutation")
class InvertPermutation:
    """The place of each number, in the type of the numbers."""

    @classmethod
    def version_11(cls, ctx: Any, node: Any, **_: Any) -> None:
        f = Form(ctx, node)
        length = f.op("Squeeze", f.op("Shape", node.input[0]), f.constant([0]))
        places = f.op("Range", f.constant(0), length, f.constant(1))
        numbers = f.cast(node.input[0], INT64)
        f.end(f.cast(f.op("ScatterElements", places, numbers, places, axis=0), f.dtype()))


@tf_op("DenseBincount")
class DenseBincount:
    """How often each number is there, in a row of a matrix or a vector, or the sum of what it weighs."""

    @classmethod
    def version_13(cls, ctx: Any, node: Any, **_: Any) -> None:
        f = Form(ctx, node)
        numbers, size, weights = node.input
        one = f.op("Reshape", f.cast(size, INT64), f.constant(np.zeros(0)))
        each = f.op("Range", f.constant(0), one, f.constant(1))
        hit = f.op("Equal", f.op("Unsqueeze", f.cast(numbers, INT64), f.constant([-1])), each)
        dtype = f.dtype(2)
        if f.flag("binary_output"):
            f.end(f.cast(f.op("ReduceMax", f.cast(hit, INT32), f.constant([-2]), keepdims=0), dtype))
            return
        counted = f.cast(hit, dtype)
        if 0 not in f.shape(2):
            counted = f.op("Mul", counted, f.op("Unsqueeze", weights, f.constant([-1])))
        f.end(f.op("ReduceSum", counted, f.constant([-2]), keepdims=0))


@tf_op("HistogramFixedWidth")
class HistogramFixedWidth:
    """How many numbers are beyond each edge, less those beyond the next.

    TensorFlow divides in float64 what it has subtracted in the numbers' own type; the edges are the least such
    differences that reach the next bin, so that no number falls into another one.
    """

    @classmethod
    def version_13(cls, ctx: Any, node: Any, **_: Any) -> None:
        f = Form(ctx, node)
        (low, high), count = f.known(1), int(f.known(2))
        if f.dtype() != FLOAT:
            raise ValueError("HistogramFixedWidth of numbers that are not float32")
        edges = _edges(np.float32(low), np.float32(high), count)
        flat = f.op("Reshape", node.input[0], f.constant([-1, 1]))
        above = f.op("Sub", f.op("Max", flat, f.like(low)), f.like(low))
        beyond = f.op("Not", f.op("Less", above, f.like(edges)))
        sums = f.op("ReduceSum", f.cast(beyond, INT32), f.constant([0]), keepdims=0)
        next_ = f.op("Concat", f.part(sums, 0, 1, count), f.constant([0], np.int32), axis=0)
        f.end(f.op("Sub", sums, next_))


def _edges(low: np.float32, high: np.float32, count: int) -> Array:
    """The least float32 of each bin, from 0."""
    places, step = np.arange(count), float(high - low) / count
    edges = np.float32(places * step)
    return np.where(edges.astype(np.float64) / step < places, np.nextafter(edges, np.float32(np.inf)), edges)


@tf_op(["ArgMax", "ArgMin"])
class ArgExtreme:
    """The first of the extremes; ``ArgMax`` takes no bools."""

    @classmethod
    def version_13(cls, ctx: Any, node: Any, **_: Any) -> None:
        f = Form(ctx, node)
        x = f.cast(node.input[0], INT32) if f.dtype() == BOOL else node.input[0]
        place = f.op(node.type, x, axis=int(f.known(1)), keepdims=0)
        f.end(f.cast(place, int(ctx.get_dtype(node.output[0]))))


@tf_op("NthElement")
class NthElement:
    """The last of the first n + 1 elements in order."""

    @classmethod
    def version_11(cls, ctx: Any, node: Any, **_: Any) -> None:
        f = Form(ctx, node)
        last = f.op("Reshape", f.cast(node.input[1], INT64), f.constant([1]))
        count = f.op("Add", last, f.constant([1]))
        values = f.several(2, "TopK", node.input[0], count, axis=-1, largest=int(f.flag("reverse")))[0]
        f.end(f.op("Squeeze", f.op("Gather", values, last, axis=-1), f.constant([-1])))


@tf_op(["LowerBound", "UpperBound"])
class Bound:
    """How many of a sorted row are below each value, or not above it."""

    @classmethod
    def version_13(cls, ctx: Any, node: Any, **_: Any) -> None:
        f = Form(ctx, node)
        row = f.op("Unsqueeze", node.input[0], f.constant([1]))
        value = f.op("Unsqueeze", node.input[1], f.constant([2]))
        inside = f.op("Less", row, value) if node.type == "LowerBound" else f.op("Not", f.op("Greater", row, value))
        dtype = int(ctx.get_dtype(node.output[0]))
        f.end(f.cast(f.op("ReduceSum", f.cast(inside, INT32), f.constant([-1]), keepdims=0), dtype))


@tf_op("Bucketize")
class Bucketize:
    """How many boundaries are no larger; all of them for NaN, as a binary search has it."""

    @classmethod
    def version_13(cls, ctx: Any, node: Any, **_: Any) -> None:
        f, x = Form(ctx, node), node.input[0]
        kind = f.numpy() if np.dtype(f.numpy()).kind == "f" else np.float32
        if np.dtype(f.numpy()).kind != "f":
            x = f.op("Cast", x, to=FLOAT)
        bounds = f.constant(np.array(node.get_attr_value("boundaries"), np.float32), kind)
        below = f.op("Less", f.op("Unsqueeze", x, f.constant([-1])), bounds)
        f.end(f.op("ReduceSum", f.op("Cast", f.op("Not", below), to=INT32), f.constant([-1]), keepdims=0))


@tf_op("EuclideanNorm")
class EuclideanNorm:
    @classmethod
    def version_18(cls, ctx: Any, node: Any, **_: Any) -> None:
        f = Form(ctx, node)
        if np.dtype(f.numpy()).kind != "f":
            raise ValueError("EuclideanNorm of whole numbers")
        axes = f.op("Reshape", f.cast(node.input[1], INT64), f.constant([-1]))
        f.end(f.op("ReduceL2", node.input[0], axes, keepdims=int(f.flag("keep_dims"))))


@tf_op("OneHot")
class OneHot:
    """What no place of the row has is nowhere, a negative number, too: ONNX counts it from the end."""

    @classmethod
    def version_13(cls, ctx: Any, node: Any, **_: Any) -> None:
        f = Form(ctx, node)
        ids, depth, axis = f.cast(node.input[0], INT64), f.cast(node.input[1], INT64), node.get_attr_value("axis", -1)
        on, off = node.input[2], node.input[3]
        if f.dtype(2) == FLOAT:
            ids = f.op("Where", f.op("Less", ids, f.constant(0)), depth, ids)
            values = f.op("Concat", *(f.op("Reshape", each, f.constant([1])) for each in (off, on)), axis=0)
            f.end(f.op("OneHot", ids, f.op("Reshape", depth, f.constant([1])), values, axis=axis))
            return
        rank = len(f.shape())
        place = axis % (rank + 1)
        numbers = f.op("Range", f.constant(0), depth, f.constant(1))
        if place < rank:
            numbers = f.op("Unsqueeze", numbers, f.constant(list(range(1, rank - place + 1))))
        f.end(f.op("Where", f.op("Equal", f.op("Unsqueeze", ids, f.constant([place])), numbers), on, off))


@tf_op(["DebugGradientIdentity", "GuaranteeConst", "PreventGradient", "Print"])
class Identity:
    """What hands its first input on."""

    @classmethod
    def version_9(cls, ctx: Any, node: Any, **_: Any) -> None:
        Form(ctx, node).end(node.input[0])


@tf_op("SparseSoftmaxCrossEntropyWithLogits")
class SparseSoftmaxCrossEntropy:
    """What the label's logarithm lacks; tf2onnx multiplies the others by 0, and infinite ones give NaN."""

    @classmethod
    def version_13(cls, ctx: Any, node: Any, **_: Any) -> None:
        f = Form(ctx, node)
        logarithms = f.op("LogSoftmax", node.input[0], axis=-1)
        labels = f.op("Unsqueeze", f.cast(node.input[1], INT64), f.constant([-1]))
        taken = f.op("GatherElements", logarithms, labels, axis=-1)
        f.end(f.op("Neg", f.op("Squeeze", taken, f.constant([-1]))))
