"""NonMaxSuppression: the builtin kernel for each class of each image, its results joined."""

from __future__ import annotations

import numpy as np

from convertkit.errors import Unsupported
from convertkit.onnx.registry import Registry
from convertkit.targets.forms.suppressed import Suppression, suppression_node
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.handlers.elementary import constant_ints, constant_of, float_only, like
from convertkit.targets.tflite.handlers.indexing import static_shape
from convertkit.targets.tflite.handlers.shapes import cut
from convertkit.targets.tflite.tensor import DYNAMIC, Tensor

suppression = Registry()

_MAX_CLASSES = 256
"""Kernels in one file; detectors with more classes suppress regardless of class."""
_FAR = 1e12
"""The side of a box that is moved away is the largest coordinate, up to this: areas stay finite."""


@suppression.lowers("NonMaxSuppression", since=11)
@suppression_node
def non_max_suppression(b: Builder, node: Suppression[Tensor]) -> Tensor:
    """Rows of image, class and box; how many is known at run time."""
    boxes, scores, max_boxes = node.boxes, node.scores, node.max_boxes
    float_only(boxes, "NonMaxSuppression")
    images, count, _ = static_shape(boxes, "NonMaxSuppression")
    classes = static_shape(scores, "NonMaxSuppression")[1]
    if images * classes > _MAX_CLASSES:
        raise Unsupported(f"{images * classes} classes: TFLite NON_MAX_SUPPRESSION_V4 takes one at a time")
    limit = min(constant_ints(max_boxes, "the number of boxes")[0], count) if max_boxes is not None else 0
    if limit <= 0:
        raise Unsupported("at most 0 boxes: the result is always empty")
    corners = _with_areas(b, _corners(b, boxes, node.centred), count)
    overlap = _just_above(b, node.iou_threshold)
    least = _threshold(b, node.score_threshold, float(np.finfo(np.float32).min))
    rows = []
    for image in range(images):
        own = b.reshape(cut(b, corners, [slice(image, image + 1), slice(None), slice(None)]), (count, 4))
        for kind in range(classes):
            part = cut(b, scores, [slice(image, image + 1), slice(kind, kind + 1), slice(None)])
            kept = _kept(b, own, b.reshape(part, (count,)), limit, overlap, least)
            named = b.constant(np.array([[image, kind, 0]], np.int32))
            # (n, 1) times (0, 0, 1), plus the image and the class.
            rows.append(b.add(b.mul(kept, b.constant(np.array([[0, 0, 1]], np.int32))), named))
    return b.cast(b.concatenation(rows, 0), "int64")


def _kept(b: Builder, boxes: Tensor, scores: Tensor, limit: int, overlap: Tensor, least: Tensor) -> Tensor:
    """Indices (n, 1) of the boxes that stay, best first."""
    most = b.constant(np.array(limit, np.int32))
    outputs = [((limit,), "int32"), ((), "int32")]
    inputs = (boxes, scores, most, overlap, least)
    indices, number = b.emit_many("NON_MAX_SUPPRESSION_V4", inputs, outputs)  # type: ignore[arg-type]
    size = b.concatenation([b.reshape(number, (1,)), b.ints([1])], 0)
    return b.slice_at(b.reshape(indices, (limit, 1)), b.ints([0, 0]), size, (DYNAMIC, 1))


def _corners(b: Builder, boxes: Tensor, centered: bool) -> Tensor:
    """Boxes (images, count, 4) as y1, x1, y2, x2 in ascending order; ONNX's may be flipped, or centre and size."""
    halves = [cut(b, boxes, [slice(None), slice(None), slice(place, place + 2)]) for place in (0, 2)]
    if centered:
        half = b.mul(halves[1], like(b, boxes, 0.5))
        # x and y change places, which no overlap depends on.
        return b.concatenation([b.sub(halves[0], half), b.add(halves[0], half)], 2)
    return b.concatenation([b.minimum(*halves), b.maximum(*halves)], 2)


def _with_areas(b: Builder, corners: Tensor, count: int) -> Tensor:
    """Boxes (images, count, 4), those without an area moved away from all others and from each other, as squares.

    The kernel puts a chosen box back, and drops it later as it overlaps itself.  One without an area overlaps nothing,
    so that the kernel would choose it until the result is full (tensorflow/lite/kernels/internal/reference/
    non_max_suppression.h); in ONNX Runtime it is chosen once.
    """
    start, end = (cut(b, corners, [slice(None), slice(None), slice(place, place + 2)]) for place in (0, 2))
    sides = b.sub(end, start)
    area = b.reduce_prod(sides, [2], keep_dims=True)
    largest = b.reduce_max(b.abs(corners), [0, 1, 2], keep_dims=True)
    unit = b.minimum(b.maximum(largest, like(b, corners, 1.0)), like(b, corners, _FAR))
    away = 2.0 * (1 + np.arange(count, dtype=np.float32))[:, None] + np.array([0, 0, 1, 1], np.float32)
    apart = b.mul(b.constant(away[None]), unit)
    return b.select(b.less_equal(area, like(b, corners, 0.0)), apart, corners)


def _just_above(b: Builder, threshold: Tensor | None) -> Tensor:
    """The next float: the kernel drops a box that reaches the threshold, ONNX one that exceeds it."""
    value = 0.0 if threshold is None else float(constant_of(threshold, "the threshold of overlap").item())
    if value >= 1:
        raise Unsupported("iou_threshold 1: TFLite NON_MAX_SUPPRESSION_V4 drops equal boxes at its largest threshold")
    return b.constant(np.nextafter(np.float32(value), np.float32(1)))


def _threshold(b: Builder, value: Tensor | None, default: float) -> Tensor:
    return b.constant(np.array(default, np.float32)) if value is None else b.reshape(value, ())
