"""TopK and NonMaxSuppression, by scores that tell what else a right runtime might choose."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.twin.call import Call, Handler, Results
from convertkit.onnx.twin.values import Tensor

_COUNT_IS_AN_OPERAND_SINCE = 10


def _top_k(call: Call) -> Results | None:
    """Equal values: the lower index first (ONNX operators, TopK-11)."""
    x = call.tensor(0)
    if call.opset < _COUNT_IS_AN_OPERAND_SINCE or not x.is_real or x.array.ndim == 0 or np.isnan(x.array).any():
        return None
    axis, count = call.whole("axis", -1), int(call.array(1).reshape(-1)[0])
    lanes = np.moveaxis(x.array, axis, -1)
    scores = (lanes if call.whole("largest", 1) else -lanes).reshape(-1, lanes.shape[-1])
    keys = call.choices.keys(call.node, scores)
    places = np.argsort(-keys, axis=-1, kind="stable")[:, :count]
    for lane, chosen in enumerate(places):
        call.choices.chosen(call.node, lane, chosen)
    call.choices.done(call.node)
    places = np.moveaxis(places.reshape(*lanes.shape[:-1], places.shape[-1]), -1, axis)
    values = np.take_along_axis(x.array, places, axis)
    return Tensor(values, x.dtype), Tensor(places.astype(np.int64), ir.DataType.INT64)


def _suppression(call: Call) -> Results | None:
    """Boxes (images, N, 4) and scores (images, classes, N) → rows of image, class and box, the best first."""
    boxes, scores = call.array(0), call.array(1)
    if np.isnan(scores).any() or np.isnan(boxes).any():
        return None
    most = call.optional(2)
    limit = 0 if most is None else int(most.reshape(-1)[0])
    corners = _corners(boxes, centered=bool(call.whole("center_point_box")))
    keys = call.choices.keys(call.node, scores.reshape(-1, scores.shape[-1]))
    rows = []
    for lane, key in enumerate(keys):
        image, kind = divmod(lane, scores.shape[1])
        kept = _kept(call, corners[image], key, scores[image, kind], limit)
        call.choices.chosen(call.node, lane, kept)
        rows.append(np.stack([np.full(len(kept), image), np.full(len(kept), kind), kept], 1))
    call.choices.done(call.node)
    found = np.concatenate(rows) if rows else np.zeros((0, 3))
    return (Tensor(found.astype(np.int64), ir.DataType.INT64),)


def _corners(boxes: Array, *, centered: bool) -> Array:
    """(images, N, 4): the least y and x (or x and y), then the largest."""
    first, second = boxes[..., :2], boxes[..., 2:]
    if centered:
        first, second = first - second / 2, first + second / 2
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], -1)


def _kept(call: Call, boxes: Array, keys: Array, scores: Array, limit: int) -> Array:
    """Indices of the boxes that stay.  A box without an area overlaps none, as in ONNX Runtime."""
    overlap, least = (_number(call.optional(place)) for place in (3, 4))
    alive = np.argsort(-keys, kind="stable")
    if least is not None:
        alive = alive[scores[alive] > least]
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=-1)
    kept = list[int]()
    while alive.size and len(kept) < limit:
        best, alive = int(alive[0]), alive[1:]
        kept.append(best)
        sides = np.minimum(boxes[best, 2:], boxes[alive, 2:]) - np.maximum(boxes[best, :2], boxes[alive, :2])
        shared = np.where((sides > 0).all(-1) & (areas[alive] > 0) & (areas[best] > 0), sides.prod(-1), 0.0)
        whole = areas[best] + areas[alive] - shared
        share = call.step(np.divide(shared, whole, out=np.zeros_like(shared), where=shared > 0))
        alive = alive[(shared <= 0) | (share <= (overlap or 0.0))]
    return np.array(kept, np.int64)


def _number(operand: Array | None) -> float | None:
    return None if operand is None or operand.size == 0 else float(operand.reshape(-1)[0])


HANDLERS: Mapping[str, Handler] = {"TopK": _top_k, "NonMaxSuppression": _suppression}
