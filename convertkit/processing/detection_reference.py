"""What becomes of a detector's outputs, in plain NumPy: the reference that the model's operators are held against."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from convertkit.artifact import Array
from convertkit.processing.detection_words import Suppression
from convertkit.processing.detections import BOXES, CLASSES, COUNT, POINTS, SCORES, Detections

_BOX = 4


def detected(outputs: Mapping[str, Array], plan: Detections) -> dict[str, Array]:
    """The results of ``plan`` by their names, for the model's own outputs.

    Arithmetic is float32, in the order of the model's operators; overlaps are of float64.
    """
    boxes, points, scores = _parts(outputs, plan)
    boxes, points = _decoded(boxes, points, plan)
    chosen = [_chosen(*each, plan.how) for each in zip(boxes, scores, strict=True)]
    found = {
        BOXES: np.stack([_filled(image[place], plan) for image, (place, _, _) in zip(boxes, chosen, strict=True)]),
        SCORES: np.stack([_filled(score, plan) for _, _, score in chosen]),
        CLASSES: np.stack([_filled(kind, plan) for _, kind, _ in chosen]),
        POINTS: np.stack([_filled(image[place], plan) for image, (place, _, _) in zip(points, chosen, strict=True)]),
        COUNT: np.array([len(place) for place, _, _ in chosen], np.int64),
    }
    return {name: found[name] for name in plan.names}


def _parts(outputs: Mapping[str, Array], plan: Detections) -> tuple[Array, Array, Array]:
    """Four numbers of each box, those of its points, and its scores: (images, candidates, …) each."""
    how = plan.how
    laid = {name: outputs[name] for name in plan.taken}
    if how.columns:
        laid = {name: value.transpose(0, 2, 1) if value.ndim == 3 else value for name, value in laid.items()}
    numbers, scores = laid[plan.boxes], laid[plan.scores]
    width = numbers.shape[2] - 2 * how.points
    boxes, points = numbers[..., :_BOX], numbers[..., width:]
    if how.in_one:
        scores = numbers[..., _BOX + how.objectness : width]
    elif scores.ndim == 2:
        scores = scores[..., None]
    scores = squashed(scores, how)
    if how.background:
        scores = scores[..., 1:]
    if how.objectness:
        scores = scores * squashed(numbers[..., _BOX : _BOX + 1], how, alone=True)
    return boxes, points, scores


def squashed(scores: Array, how: Suppression, *, alone: bool = False) -> Array:
    """Probabilities of logits, as ``how`` says; an objectness stands ``alone``, and has a sigmoid for a softmax."""
    if how.squash is None:
        return scores
    if how.squash == "sigmoid" or alone:
        return np.asarray(1 / (1 + np.exp(-scores.astype(np.float64))), np.float32)
    raised = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True), np.float32)


def _decoded(boxes: Array, points: Array, plan: Detections) -> tuple[Array, Array]:
    """Boxes as left, top, right, bottom, and points as x, y pairs."""
    form = plan.how.form
    first, second = boxes[..., :2], boxes[..., 2:]
    if plan.how.anchors is not None and plan.anchors is not None:
        centres, sizes = plan.anchors[:, :2], plan.anchors[:, 2:]
        near, far = (np.float32(each) for each in plan.how.anchors.scales)
        pairs = (len(points), plan.candidates, plan.how.points, 2)
        moved = points.reshape(pairs) / near * sizes[:, None] + centres[:, None]
        points = moved.reshape(points.shape)
        first = first / near * sizes + centres
        second = (np.exp(second / far) if plan.how.anchors.exponents else second / far) * sizes
    if form.startswith("c"):
        half = second * np.float32(0.5)
        first, second = first - half, first + half
    elif form == "xywh":
        second = first + second
    if form in ("yxyx", "cycxhw"):
        first, second = first[..., ::-1], second[..., ::-1]
        points = points.reshape(*points.shape[:2], plan.how.points, 2)[..., ::-1].reshape(points.shape)
    return np.concatenate([first, second], -1), points


def _chosen(boxes: Array, scores: Array, how: Suppression) -> tuple[Array, Array, Array]:
    """Of one image the places, classes and scores of the boxes that are told, best first."""
    rows: list[tuple[float, int, int]] = []
    if how.multi:
        lanes = [(kind, scores[:, kind]) for kind in range(scores.shape[1])]
    else:
        best, kinds = scores.max(-1), scores.argmax(-1)
        names = [None] if how.agnostic else range(scores.shape[1])
        lanes = [(0 if kind is None else kind, np.where((kinds == kind) | (kind is None), best, -1)) for kind in names]
    for kind, lane in lanes:
        kept = suppressed(boxes, lane, how)
        rows += [(float(lane[place]), kind, place) for place in kept]
    rows.sort(key=lambda row: (-row[0], *((row[1], row[2]) if how.multi else (row[2],))))
    rows = rows[: how.most]
    places = np.array([place for _, _, place in rows], np.int64)
    told = np.array([kind for _, kind, _ in rows], np.int64)
    if how.agnostic:
        told = scores.argmax(-1)[places]
    return places, told.astype(np.int64), np.array([score for score, _, _ in rows], np.float32)


def suppressed(boxes: Array, scores: Array, how: Suppression) -> list[int]:
    """Places of the boxes that stay, best first: greedily, each takes away what it covers."""
    low, high = np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])
    sides = (high - low).astype(np.float64)
    areas = sides.prod(-1)
    alive = np.argsort(-scores, kind="stable")
    alive = alive[scores[alive] > np.float32(how.least)]
    kept: list[int] = []
    while alive.size and len(kept) < how.most:
        best, alive = int(alive[0]), alive[1:]
        kept.append(best)
        shared = np.minimum(high[best], high[alive]) - np.maximum(low[best], low[alive])
        common = np.clip(shared.astype(np.float64), 0, None).prod(-1)
        union = areas[best] + areas[alive] - common
        alive = alive[common <= np.float32(how.overlap) * union]
    return kept


def _filled(rows: Array, plan: Detections) -> Array:
    """With zeros behind them."""
    filled = np.zeros((plan.how.most, *rows.shape[1:]), rows.dtype)
    filled[: len(rows)] = rows
    return filled
