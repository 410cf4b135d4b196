"""Operators that make one element of many along axes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convertkit.targets.tf_serving.call import Call, Handler


def _reduced(name: str) -> Handler:
    def handler(call: Call) -> Any:
        axes = [int(axis) for axis in call.constant(1).reshape(-1)]
        return getattr(call.tf, name)(call[0], axis=axes, keepdims=bool(call.options["keepDims"]))

    return handler


def _place(name: str) -> Handler:
    def handler(call: Call) -> Any:
        axis = int(call.constant(1).reshape(()))
        return getattr(call.tf, name)(call[0], axis=axis, output_type=call.outputs[0].dtype)

    return handler


def top_k(call: Call) -> Any:
    found = call.tf.math.top_k(call[0], call[1], sorted=True)
    return found.values, call.tf.cast(found.indices, call.outputs[1].dtype)


def cumsum(call: Call) -> Any:
    options = call.options
    return call.tf.cumsum(call[0], call[1], exclusive=bool(options["exclusive"]), reverse=bool(options["reverse"]))


def _segments(name: str) -> Handler:
    def handler(call: Call) -> Any:
        return getattr(call.tf.math, name)(call[0], call[1], call[2])

    return handler


def suppression(call: Call) -> Any:
    """Indices filled up with 0, and how many there are."""
    boxes, scores, most, overlap, least = call.inputs
    return call.tf.raw_ops.NonMaxSuppressionV4(
        boxes=boxes, scores=scores, max_output_size=most, iou_threshold=overlap, score_threshold=least,
        pad_to_max_output_size=True,
    )  # fmt: skip


REDUCTIONS: Mapping[str, Handler] = {
    "SUM": _reduced("reduce_sum"),
    "MEAN": _reduced("reduce_mean"),
    "REDUCE_MAX": _reduced("reduce_max"),
    "REDUCE_MIN": _reduced("reduce_min"),
    "REDUCE_PROD": _reduced("reduce_prod"),
    "REDUCE_ALL": _reduced("reduce_all"),
    "REDUCE_ANY": _reduced("reduce_any"),
    "ARG_MAX": _place("argmax"),
    "ARG_MIN": _place("argmin"),
    "TOPK_V2": top_k,
    "CUMSUM": cumsum,
    "NON_MAX_SUPPRESSION_V4": suppression,
    "UNSORTED_SEGMENT_MAX": _segments("unsorted_segment_max"),
    "UNSORTED_SEGMENT_MIN": _segments("unsorted_segment_min"),
    "UNSORTED_SEGMENT_PROD": _segments("unsorted_segment_prod"),
    "UNSORTED_SEGMENT_SUM": _segments("unsorted_segment_sum"),
}
