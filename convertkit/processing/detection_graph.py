"""Suppression of a detector's boxes written into canonical ONNX, as ordinary operators behind its outputs.

ONNX's NonMaxSuppression tells as many rows as there are.  Their scores are put back into an array of zeros, of which
TopK takes the best: so the results have one size, whatever the picture shows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.processing.detections import BOXES, CLASSES, COUNT, POINTS, SCORES, Detections
from convertkit.processing.writer import Writer
from convertkit.profile import STAYS_FLOAT

_BOX = 4
_FLOAT, _INT64 = int(ir.DataType.FLOAT), int(ir.DataType.INT64)
_RESULTS = {BOXES: ir.DataType.FLOAT, SCORES: ir.DataType.FLOAT, POINTS: ir.DataType.FLOAT}


@dataclass(frozen=True, slots=True)
class _Parts:
    """Boxes (images, candidates, 4), points (images, candidates, 2 n) or None, scores (images, candidates, classes)."""

    boxes: ir.Value
    points: ir.Value | None
    scores: ir.Value


def write_detections(graph: ir.Graph, plan: Detections) -> None:
    """Put the results of ``plan`` in place of the outputs that they are made of."""
    write = Writer(graph, "postprocess")
    ends = {str(value.name): value for value in graph.outputs}
    parts = _decoded(write, _parts(write, ends[plan.boxes], ends[plan.scores], plan), plan)
    found = _told(write, parts, plan)
    for name in plan.taken:
        ends[name].name = f"{name}/candidates"
    for name, value in found.items():
        value.name, value.type = name, ir.TensorType(_RESULTS.get(name, ir.DataType.INT64))
    kept = [value for name, value in ends.items() if name not in plan.taken]
    at = min(place for place, name in enumerate(ends) if name in plan.taken)
    graph.outputs[:] = [*kept[:at], *(found[name] for name in plan.names), *kept[at:]]
    for node in write.nodes:
        node.metadata_props[STAYS_FLOAT] = "boxes are decoded and chosen as the source has them"
    graph.extend(write.nodes)


def _parts(write: Writer, boxes: ir.Value, scores: ir.Value, plan: Detections) -> _Parts:
    how, one = plan.how, boxes is scores
    if how.columns:
        turned = write.op("Transpose", boxes, perm=[0, 2, 1])
        scores = turned if one else _turned(write, scores)
        boxes = turned
    width = _BOX + 2 * how.points + (plan.classes + int(how.objectness) + int(how.background) if one else 0)
    behind = width - 2 * how.points
    numbers = boxes
    if one:
        scores = write.cut(numbers, _BOX + int(how.objectness), behind)
    elif scores.shape is not None and len(scores.shape) == 2:
        scores = write.op("Unsqueeze", scores, write.ints(-1))
    scores = _squashed(write, scores, plan, alone=False)
    if how.background:
        scores = write.cut(scores, 1, plan.classes + 1)
    if how.objectness:
        scores = write.op("Mul", scores, _squashed(write, write.cut(numbers, _BOX, _BOX + 1), plan, alone=True))
    boxes = numbers if width == _BOX else write.cut(numbers, 0, _BOX)
    return _Parts(boxes, write.cut(numbers, behind, width) if how.points else None, scores)


def _turned(write: Writer, scores: ir.Value) -> ir.Value:
    flat = scores.shape is not None and len(scores.shape) == 2
    return scores if flat else write.op("Transpose", scores, perm=[0, 2, 1])


def _squashed(write: Writer, scores: ir.Value, plan: Detections, *, alone: bool) -> ir.Value:
    if plan.how.squash is None:
        return scores
    if plan.how.squash == "sigmoid" or alone:
        return write.op("Sigmoid", scores)
    return write.op("Softmax", scores, axis=-1)


def _decoded(write: Writer, parts: _Parts, plan: Detections) -> _Parts:
    """Boxes as left, top, right, bottom, and points as x, y pairs."""
    form, points = plan.how.form, parts.points
    if form == "xyxy" and plan.anchors is None:
        return parts
    first, second = (write.cut(parts.boxes, start, start + 2) for start in (0, 2))
    if plan.anchors is not None and plan.how.anchors is not None:
        centres, sizes = plan.anchors[None, :, :2], plan.anchors[None, :, 2:]
        near, far = plan.how.anchors.scales
        if points is not None:
            times = (1, 1, plan.how.points)
            points = _moved(write, points, near, np.tile(sizes, times), np.tile(centres, times))
        first = _moved(write, first, near, sizes, centres)
        second = _over(write, second, far)
        second = write.op("Exp", second) if plan.how.anchors.exponents else second
        second = write.op("Mul", second, write.constant(sizes))
    if form.startswith("c"):
        half = write.op("Mul", second, write.real(0.5))
        first, second = write.op("Sub", first, half), write.op("Add", first, half)
    elif form == "xywh":
        second = write.op("Add", first, second)
    boxes = write.op("Concat", first, second, axis=-1)
    if form in ("yxyx", "cycxhw"):
        boxes = write.op("Gather", boxes, write.ints(1, 0, 3, 2), axis=2)
        if points is not None:
            order = np.arange(2 * plan.how.points).reshape(-1, 2)[:, ::-1].ravel()
            points = write.op("Gather", points, write.ints(*order.tolist()), axis=2)
    return _Parts(boxes, points, parts.scores)


def _moved(write: Writer, value: ir.Value, scale: float, sizes: Array, centres: Array) -> ir.Value:
    scaled = write.op("Mul", _over(write, value, scale), write.constant(sizes))
    return write.op("Add", scaled, write.constant(centres))


def _over(write: Writer, value: ir.Value, scale: float) -> ir.Value:
    return value if scale == 1 else write.op("Div", value, write.real(scale))


def _told(write: Writer, parts: _Parts, plan: Detections) -> dict[str, ir.Value]:
    """The results by their names; rows behind the last box are zeros."""
    kept, kinds = _every_class(write, parts, plan) if plan.how.multi else _best_class(write, parts, plan)
    best, places = write.all_of("TopK", kept, write.ints(plan.how.most), outputs=2, axis=-1)
    valid = write.op("Greater", best, write.real(0))
    real, whole = (write.op("Cast", valid, to=kind) for kind in (_FLOAT, _INT64))
    if kinds is None:
        candidates = write.constant(np.array(plan.candidates, np.int64))
        told, places = write.op("Div", places, candidates), write.op("Mod", places, candidates)
    else:
        told = write.op("GatherElements", kinds, places, axis=1)
    rows = write.op("Unsqueeze", places, write.ints(-1))
    column = write.op("Unsqueeze", real, write.ints(-1))
    found = {
        BOXES: write.op("Mul", write.op("GatherND", parts.boxes, rows, batch_dims=1), column),
        SCORES: write.op("Identity", best),
        CLASSES: write.op("Where", valid, told, write.constant(np.array(0, np.int64))),
        COUNT: write.op("ReduceSum", whole, write.ints(-1), keepdims=0),
    }
    if parts.points is not None:
        found[POINTS] = write.op("Mul", write.op("GatherND", parts.points, rows, batch_dims=1), column)
    return found


def _every_class(write: Writer, parts: _Parts, plan: Detections) -> tuple[ir.Value, None]:
    """Scores (images, classes x candidates) of what stays, zeros elsewhere."""
    scores = write.op("Transpose", parts.scores, perm=[0, 2, 1])
    kept = _put_back(write, scores, _suppressed(write, parts.boxes, scores, plan))
    return write.op("Reshape", kept, write.ints(0, plan.classes * plan.candidates)), None


def _best_class(write: Writer, parts: _Parts, plan: Detections) -> tuple[ir.Value, ir.Value]:
    """Scores (images, candidates) of what stays, zeros elsewhere, and which class each box is of."""
    best = write.greatest(parts.scores)
    kinds = write.op("ArgMax", parts.scores, axis=-1, keepdims=0)
    lanes = write.op("Unsqueeze", best, write.ints(1))
    if plan.classes > 1 and not plan.how.agnostic:
        names = write.constant(np.arange(plan.classes)[None, :, None])
        own = write.op("Equal", write.op("Unsqueeze", kinds, write.ints(1)), names)
        lanes = write.op("Where", own, lanes, write.real(-1))
    rows = _suppressed(write, parts.boxes, lanes, plan)
    return _put_back(write, best, write.op("Gather", rows, write.ints(0, 2), axis=1)), kinds


def _suppressed(write: Writer, boxes: ir.Value, scores: ir.Value, plan: Detections) -> ir.Value:
    """Rows of image, class and box; overlaps do not ask which axis comes first."""
    limits = (
        write.constant(np.array([plan.how.overlap], np.float32)),
        write.constant(np.array([plan.how.least], np.float32)),
    )
    return write.op("NonMaxSuppression", boxes, scores, write.ints(plan.how.most), *limits)


def _put_back(write: Writer, scores: ir.Value, rows: ir.Value) -> ir.Value:
    """``scores`` at those places, zeros elsewhere."""
    zeros = write.op("ConstantOfShape", write.op("Shape", scores))
    return write.op("ScatterND", zeros, rows, write.op("GatherND", scores, rows))
