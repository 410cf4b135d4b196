"""NonMaxSuppression as MIL's, one class of one image in each lane.

MIL pads what it tells up to the number of boxes that were asked for, and does not document with what.  A box that
scores less than all others stands in front of them, at place 0: padding of 0, of -1, of a place behind the last or of
one that was told already is then seen, and the result does not depend on it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from convertkit.errors import Unsupported
from convertkit.onnx.registry import Registry
from convertkit.targets.coreml.builder import Builder
from convertkit.targets.coreml.handlers.operands import integers, known
from convertkit.targets.coreml.suppressions import DOMAIN, MARKS
from convertkit.targets.coreml.tensor import Tensor, constant
from convertkit.targets.forms.suppressed import Suppression, suppression_node

suppression = Registry()

_IOS17 = 8
"""From here on boxes are the last axis, and neither a threshold of scores nor a count is there."""


@dataclass(frozen=True, slots=True)
class _Told:
    """For each lane of image and class ``most`` places, 0 where none is told; ``valid`` says where one is."""

    places: Tensor
    valid: Tensor
    images: int
    classes: int
    boxes: int
    most: int


@suppression.lowers("NonMaxSuppression", since=11)
@suppression_node
def non_max_suppression(b: Builder, node: Suppression[Tensor]) -> Tensor:
    """Rows of image, class and box, as many as there are."""
    told = _told(b, node)
    lanes = np.indices((told.images, told.classes)).reshape(2, -1, 1, 1)
    each = np.broadcast_to(lanes, (2, told.images * told.classes, told.most, 1)).astype(np.int32)
    boxes_of = b.op("sub", x=told.places, y=b.full(1, told.places))
    column = b.reshape(boxes_of, (*told.places.sizes, 1))
    table = b.reshape(b.concat([constant(each[0]), constant(each[1]), column], 2), (-1, 3))
    at = b.op("non_zero", x=b.cast(b.reshape(told.valid, (-1,)), "int32"))
    return b.op("gather", x=table, indices=b.op("squeeze", x=at, axes=(1,)), axis=np.int32(0))


@suppression.lowers_custom(MARKS, domain=DOMAIN)
@suppression_node
def marks(b: Builder, node: Suppression[Tensor]) -> Tensor:
    """Booleans (images, classes, boxes): which would be told."""
    told = _told(b, node)
    lanes, count = told.images * told.classes, told.boxes
    none = constant(np.zeros((lanes, count + 1), np.int32))
    ones = b.cast(told.valid, "int32")
    found = b.op("scatter_along_axis", data=none, indices=told.places, updates=ones, axis=np.int32(1), mode="update")
    kept = b.op("slice_by_index", x=found, begin=(0, 1), end=(lanes, count + 1))
    return b.cast(b.reshape(kept, (told.images, told.classes, count)), "bool")


def _told(b: Builder, node: Suppression[Tensor]) -> _Told:
    boxes, scores, max_boxes, score_threshold = node.boxes, node.scores, node.max_boxes, node.score_threshold
    images, classes, count = scores.sizes
    most = 0 if max_boxes is None else min(integers(max_boxes, "the number of boxes")[0], count)
    if most <= 0:
        raise Unsupported("at most 0 boxes: the result is always empty")
    overlap = _number(node.iou_threshold, 0.0, "the threshold of overlap")
    lanes = images * classes
    ranked = b.reshape(scores, (lanes, 1, count))
    lowest = b.real(float(np.finfo(scores.dtype).min), scores)
    ranked = b.concat([constant(np.full((lanes, 1, 1), lowest)), ranked], 2)
    laid = _laid(b, boxes, classes, node.centred)
    if b.version >= _IOS17:
        _, _, places = b.ops(
            "non_maximum_suppression", boxes=laid, scores=ranked, iou_threshold=b.real(overlap, boxes), max_boxes=most
        )
    else:
        rows, column = b.transpose(laid, (0, 2, 1)), b.transpose(ranked, (0, 2, 1))
        given = {"iou_threshold": b.real(overlap, boxes), "score_threshold": lowest, "max_boxes": most}
        _, _, places, _ = b.ops("non_maximum_suppression", boxes=rows, scores=column, **given)
    valid = b.op(
        "logical_and",
        x=b.op("greater", x=places, y=b.full(0, places)),
        y=b.op("less_equal", x=places, y=b.full(count, places)),
    )
    places = b.select(valid, places, b.full(0, places))
    if score_threshold is not None:
        least = b.real(_number(score_threshold, 0.0, "the threshold of scores"), scores)
        row = b.reshape(ranked, (lanes, count + 1))
        got = b.op("gather_along_axis", x=row, indices=places, axis=np.int32(1))
        valid = b.op("logical_and", x=valid, y=b.op("greater", x=got, y=constant(np.asarray(least))))
        places = b.select(valid, places, b.full(0, places))
    return _Told(places, valid, images, classes, count, most)


def _laid(b: Builder, boxes: Tensor, classes: int, centred: bool) -> Tensor:
    """Centre and size of each box (lanes, 4, 1 + boxes), which of ONNX's corners come first being left open."""
    images, count, _ = boxes.sizes
    halves = [b.op("slice_by_index", x=boxes, begin=(0, 0, at), end=(images, count, at + 2)) for at in (0, 2)]
    if not centred:
        low, high = b.op("minimum", x=halves[0], y=halves[1]), b.op("maximum", x=halves[0], y=halves[1])
        sides = b.op("sub", x=high, y=low)
        halves = [b.op("add", x=low, y=b.op("mul", x=sides, y=b.full(0.5, sides))), sides]
    columns = b.transpose(b.concat(halves, 2), (0, 2, 1))
    front = np.zeros((images, 4, 1), boxes.dtype)
    front[:, 2:] = 1
    whole = b.concat([constant(front), columns], 2)
    if classes == 1:
        return whole
    spread = b.spread(b.reshape(whole, (images, 1, 4 * (count + 1))), (images, classes, 4 * (count + 1)))
    return b.reshape(spread, (images * classes, 4, count + 1))


def _number(operand: Tensor | None, default: float, what: str) -> float:
    return default if operand is None else float(known(operand, what).reshape(()))
