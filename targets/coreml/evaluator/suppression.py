"""Boxes that do not cover each other.

Source: coremltools, mil/ops/defs, iOS15/tensor_operation.py and iOS17/tensor_operation.py.  What is padded with is not
told there: here it is 0, and -1 for indices, and nothing that we lower depends on it.
"""

from __future__ import annotations

import numpy as np

from convertkit.artifact import Array
from convertkit.targets.coreml.evaluator.table import Table

suppression = Table()


@suppression.computes("non_maximum_suppression")
def _non_maximum_suppression(
    *,
    boxes: Array,
    scores: Array,
    iou_threshold: Array,
    max_boxes: Array,
    score_threshold: Array | None = None,
    per_class_suppression: Array | None = None,
) -> tuple[Array, ...]:
    """Of one class; where there is a threshold of scores, boxes are (lanes, boxes, 4), else (lanes, 4, boxes)."""
    older = score_threshold is not None
    if older:
        boxes, scores = boxes.transpose(0, 2, 1), scores.transpose(0, 2, 1)
    assert scores.shape[1] == 1, "scores of several classes"
    assert per_class_suppression is None or not bool(per_class_suppression), "suppression by class"
    most = int(max_boxes)
    least = -np.inf if score_threshold is None else float(score_threshold)
    chosen = [
        chosen_boxes(box, lane, float(iou_threshold), least)[:most]
        for box, lane in zip(boxes, scores[:, 0], strict=True)
    ]
    places = np.stack([np.pad(each, (0, most - each.size), constant_values=-1) for each in chosen])
    told = places[:, None] >= 0
    at = np.maximum(places, 0)[:, None]
    found = [np.where(told, np.take_along_axis(each, np.broadcast_to(at, (*each.shape[:2], most)), 2), 0)
             for each in (boxes, scores)]  # fmt: skip
    indices = places.astype(np.int32)
    if older:
        counts = np.array([each.size for each in chosen], np.int32)
        return found[0].transpose(0, 2, 1), found[1].transpose(0, 2, 1), indices, counts
    return found[0], found[1], indices


def chosen_boxes(boxes: Array, scores: Array, overlap: float, least: float) -> Array:
    """Places of boxes (4, n) of centre and size that stay, best first, of equal scores the first one."""
    half = boxes[2:] / 2
    low, high = boxes[:2] - half, boxes[:2] + half
    areas = (high - low).astype(np.float64).prod(0)
    alive = np.argsort(-scores.astype(np.float64), kind="stable")
    alive = alive[scores[alive] >= least]
    kept: list[int] = []
    while alive.size:
        best, alive = int(alive[0]), alive[1:]
        kept.append(best)
        shared = np.minimum(high[:, best, None], high[:, alive]) - np.maximum(low[:, best, None], low[:, alive])
        common = np.clip(shared.astype(np.float64), 0, None).prod(0)
        alive = alive[common <= overlap * (areas[best] + areas[alive] - common)]
    return np.array(kept, np.int64)
