"""Handlers of NonMaxSuppression, which take a node's inputs and attribute as one value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

B = TypeVar("B")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Suppression(Generic[T]):
    """Boxes (images, count, 4) and scores (images, classes, count), and the three limits where they are given.

    Source: ONNX operators, NonMaxSuppression-11.
    """

    boxes: T
    scores: T
    max_boxes: T | None
    iou_threshold: T | None
    score_threshold: T | None
    centred: bool
    """Whether a box is its centre and size, not two corners."""


def suppression_node(handler: Callable[[B, Suppression[T]], T]) -> Callable[..., T]:
    """The operator's signature around a handler."""

    def non_max_suppression(
        b: B,
        boxes: T,
        scores: T,
        max_boxes: T | None,
        iou_threshold: T | None,
        score_threshold: T | None,
        *,
        center_point_box: int = 0,
    ) -> T:
        centred = bool(center_point_box)
        return handler(b, Suppression(boxes, scores, max_boxes, iou_threshold, score_threshold, centred))

    return non_max_suppression
