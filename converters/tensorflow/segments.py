"""Reductions of segments of rows, and boxes that are suppressed, registered with tf2onnx.

Imports tf2onnx, and with it TensorFlow, therefore only ever imported in a worker process.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from convertkit.converters.tensorflow.compat import NonMaxSuppression, tf_op
from convertkit.converters.tensorflow.forms import INT64, Form

_REDUCTIONS = {"Sum": "add", "Mean": "add", "SqrtN": "add", "Prod": "mul", "Max": "max", "Min": "min"}


@tf_op([
    "SegmentSum", "SegmentProd", "SegmentMax", "SegmentMin", "SegmentMean", "SparseSegmentSum", "SparseSegmentMean",
    "SparseSegmentSqrtN",
])  # fmt: skip
class Segments:
    """Rows scattered onto those of their segments; a number without rows gives 0, of products 1.

    tf2onnx divides 0 by 0 there, or leaves an infinity.
    """

    @classmethod
    def version_18(cls, ctx: Any, node: Any, **_: Any) -> None:
        f = Form(ctx, node)
        kind = node.type.removeprefix("Sparse").removeprefix("Segment")
        rows, ids = node.input[0], f.cast(node.input[-1], INT64)
        if node.type.startswith("Sparse"):
            rows = f.op("Gather", rows, node.input[1], axis=0)
        count = f.op("Add", f.op("ReduceMax", ids, f.constant([0]), keepdims=1), f.constant([1]))
        inner = f.part(f.op("Shape", rows), 0, 1, np.iinfo(np.int64).max)
        places = f.op("Unsqueeze", ids, f.constant([1]))
        start = _start(kind, f.numpy(), least=np.inf)
        blank = f.op("Expand", f.like(start), f.op("Concat", count, inner, axis=0))
        found = f.op("ScatterND", blank, places, rows, reduction=_REDUCTIONS[kind])
        if kind in ("Sum", "Prod"):
            f.end(found)
            return
        one = f.op("Expand", f.like(1), f.op("Shape", ids))
        sizes = f.op("ScatterND", f.op("Expand", f.like(0), count), places, one, reduction="add")
        sizes = f.op("Unsqueeze", sizes, f.constant(list(range(1, len(f.shape())))))
        if kind in ("Max", "Min"):
            f.end(f.op("Where", f.op("Equal", sizes, f.like(0)), f.like(0), found))
            return
        some = f.op("Max", sizes, f.like(1))
        f.end(f.op("Div", found, some if kind == "Mean" else f.op("Sqrt", some)))


@tf_op(["UnsortedSegmentSum", "UnsortedSegmentProd", "UnsortedSegmentMax", "UnsortedSegmentMin"])
class UnsortedSegments:
    """Rows, or blocks of them, scattered onto as many segments as are asked for; those of negative numbers are dropped.

    A segment without rows has what the reduction begins with, the least number for the largest; tf2onnx leaves an
    infinity there, and counts negative numbers from the end.
    """

    @classmethod
    def version_18(cls, ctx: Any, node: Any, **_: Any) -> None:
        f = Form(ctx, node)
        kind, outer = node.type.removeprefix("UnsortedSegment"), len(f.shape(1))
        ids = f.op("Reshape", f.cast(node.input[1], INT64), f.constant([-1]))
        count = f.op("Reshape", f.cast(node.input[2], INT64), f.constant([1]))
        inner = f.part(f.op("Shape", node.input[0]), 0, outer, np.iinfo(np.int64).max)
        rows = f.op("Reshape", node.input[0], f.op("Concat", f.op("Shape", ids), inner, axis=0))
        places = f.op("Where", f.op("Less", ids, f.constant(0)), count, ids)
        sizes = f.op("Concat", f.op("Add", count, f.constant([1])), inner, axis=0)
        blank = f.op("Expand", f.like(_start(kind, f.numpy())), sizes)
        places = f.op("Unsqueeze", places, f.constant([1]))
        found = f.op("ScatterND", blank, places, rows, reduction=_REDUCTIONS[kind])
        f.end(f.op("Slice", found, f.constant([0]), count, f.constant([0])))


def _start(kind: str, dtype: Any, least: float = 0.0) -> Any:
    """What a reduction begins with; of reals -``least`` for the largest where that is given."""
    if kind not in ("Max", "Min"):
        return 1 if kind == "Prod" else 0
    if least and np.dtype(dtype).kind == "f":
        return -least if kind == "Max" else least
    ends = np.finfo(dtype) if np.dtype(dtype).kind == "f" else np.iinfo(dtype)
    return ends.min if kind == "Max" else ends.max


@tf_op("NonMaxSuppressionV5")
class Suppressed(NonMaxSuppression):  # type: ignore[misc]  # tf2onnx has no types
    """tf2onnx's form, which takes a sigma below 1 for 0."""

    @classmethod
    def version_13(cls, ctx: Any, node: Any, **how: Any) -> None:
        if float(Form(ctx, node).known(5)):
            raise ValueError("NonMaxSuppressionV5: scores that overlapping boxes lower (soft_nms_sigma)")
        cls.any_version(13, ctx, node, **how)
