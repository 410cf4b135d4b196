"""Non-maximum suppression: the builtins, and the detection head that published SSD models end in.

Source: ``tensorflow/lite/kernels/{non_max_suppression,detection_postprocess}.cc``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from convertkit.converters.tflite.builder import FREE, Builder, Tensor
from convertkit.converters.tflite.flexbuffer import numbers
from convertkit.converters.tflite.registry import Registry
from convertkit.errors import SourceError, Unsupported

suppression = Registry()


@suppression.reads("NON_MAX_SUPPRESSION_V4")
def non_max_suppression_v4(
    b: Builder, boxes: Tensor, scores: Tensor, count: Tensor, iou: Tensor, threshold: Tensor
) -> tuple[Tensor, ...]:
    """Places of the chosen boxes, zeros behind them, and how many they are."""
    places = _chosen(b, boxes, scores, _number(count), iou, threshold)
    return _filled(b, places, _number(count), b.constant(np.asarray(0))), _length(b, places)


@suppression.reads("NON_MAX_SUPPRESSION_V5")
def non_max_suppression_v5(
    b: Builder, boxes: Tensor, scores: Tensor, count: Tensor, iou: Tensor, threshold: Tensor, sigma: Tensor
) -> tuple[Tensor, ...]:
    """As V4, with the scores in between; ONNX knows no soft suppression."""
    if np.any(sigma.known):
        raise Unsupported(f"soft suppression, sigma={float(sigma.known.reshape(-1)[0])}; expected 0")
    places = _chosen(b, boxes, scores, _number(count), iou, threshold)
    best = b.op("Gather", [scores, places])
    zero = b.constant(np.asarray(0))
    return (
        _filled(b, places, _number(count), zero),
        _filled(b, best, _number(count), b.scalar(0, scores)),
        _length(b, places),
    )


def _number(count: Tensor) -> int:
    return int(count.known.reshape(-1)[0])


def _chosen(b: Builder, boxes: Tensor, scores: Tensor, count: int, iou: Tensor, threshold: Tensor) -> Tensor:
    """Places of the chosen boxes, the best first."""
    batch = [b.op("Unsqueeze", [boxes, b.constant([0])]), b.op("Unsqueeze", [scores, b.constant([0, 1])])]
    limits = [b.op("Reshape", [each, b.constant([1])]) for each in (iou, threshold)]
    found = b.op("NonMaxSuppression", [*batch, b.constant([count]), *limits], dtype="int64")
    return b.op("Squeeze", [b.op("Slice", [found, *(b.constant([n]) for n in (2, 3, 1))]), b.constant([1])])


def _length(b: Builder, x: Tensor) -> Tensor:
    return b.op("Squeeze", [b.op("Shape", [x], dtype="int64")])


def _filled(b: Builder, x: Tensor, count: int, value: Tensor) -> Tensor:
    """``x`` with ``value`` behind it up to ``count`` rows."""
    rows = b.op("Shape", [x], {"end": 1}, dtype="int64")
    missing = b.op("Sub", [b.constant([count]), rows])
    pads = b.op("Concat", [b.constant([0]), missing], {"axis": 0})
    return b.op("Pad", [x, pads, value])


@dataclass(frozen=True, slots=True)
class _Head:
    """Options of the detection head."""

    detections: int
    score_threshold: float
    iou_threshold: float
    classes: int
    scales: tuple[float, ...]

    @classmethod
    def read(cls, options: Mapping[str, float]) -> _Head:
        names = ("max_detections", "nms_score_threshold", "nms_iou_threshold", "num_classes")
        scales = ("y_scale", "x_scale", "h_scale", "w_scale")
        if missing := [name for name in (*names, *scales) if name not in options]:
            raise SourceError(f"the detection head lacks {', '.join(missing)}")
        if options.get("use_regular_nms"):
            raise Unsupported("suppression for each class on its own (use_regular_nms); expected the fast one")
        if options.get("max_classes_per_detection", 1) != 1:
            raise Unsupported(f"{options['max_classes_per_detection']:g} classes for each detection; expected 1")
        if min(options[name] for name in scales) <= 0 or options["max_detections"] < 1:
            raise SourceError("the detection head's scales and its number of detections must be positive")
        return cls(
            int(options["max_detections"]),
            options["nms_score_threshold"],
            options["nms_iou_threshold"],
            int(options["num_classes"]),
            tuple(options[name] for name in scales),
        )


@suppression.reads_custom("TFLite_Detection_PostProcess")
def detection_postprocess(b: Builder, encoded: Tensor, scores: Tensor, anchors: Tensor) -> tuple[Tensor, ...]:
    """Boxes, classes, scores and their number, for one image.

    Boxes are offsets from anchors (y, x, height, width).  Each box competes with its best class; the first
    columns of ``scores`` beyond ``num_classes`` are the background.
    """
    assert b.operator is not None
    head = _Head.read(numbers(b.operator.custom_options))
    if encoded.dims[0] != 1 or FREE in scores.dims:
        raise Unsupported("detection for several images at once; the kernel takes one")
    background = scores.dims[-1] - head.classes
    if background not in (0, 1):
        raise SourceError(f"{scores.dims[-1]} columns of scores for {head.classes} classes")
    boxes = _decoded(b, encoded, anchors, head.scales)
    columns = b.op("Squeeze", [scores, b.constant([0])])
    real = b.op("Slice", [columns, b.constant([background]), b.constant([scores.dims[-1]]), b.constant([1])])
    best = b.op("ReduceMax", [real, b.constant([1])], {"keepdims": 0})
    kinds = b.op("ArgMax", [real], {"axis": 1, "keepdims": 0}, dtype="int64")
    reached = np.nextafter(np.float32(head.score_threshold), np.float32(-np.inf))  # a score equal to it counts
    limits = [b.constant(np.asarray(each, np.float32)) for each in (head.iou_threshold, reached)]
    places = _chosen(b, boxes, best, head.detections, *limits)
    return _detections(b, (boxes, kinds, best), places, head.detections)


def _detections(b: Builder, found: tuple[Tensor, ...], places: Tensor, count: int) -> tuple[Tensor, ...]:
    boxes, kinds, best = found
    zero = b.scalar(0, boxes)
    rows = b.op("Shape", [places], {"end": 1}, dtype="int64")
    missing = b.op("Sub", [b.constant([count]), rows])
    pads = b.op("Concat", [b.constant([0, 0]), missing, b.constant([0])], {"axis": 0})
    chosen = b.op("Pad", [b.op("Gather", [boxes, places]), pads, zero])
    classes = _filled(b, b.cast(b.op("Gather", [kinds, places]), "float32"), count, zero)
    scores = _filled(b, b.op("Gather", [best, places]), count, zero)
    results = [b.op("Unsqueeze", [each, b.constant([0])]) for each in (chosen, classes, scores)]
    return (*results, b.cast(rows, "float32"))


def _decoded(b: Builder, encoded: Tensor, anchors: Tensor, scales: tuple[float, ...]) -> Tensor:
    """Corners (y, x, y, x) of every box."""
    offsets = b.op("Squeeze", [encoded, b.constant([0])])
    y, x, height, width = (
        b.op("Div", [_column(b, offsets, place), b.scalar(scale, offsets)]) for place, scale in enumerate(scales)
    )
    at_y, at_x, high, wide = (_column(b, anchors, place) for place in range(4))
    centres = [b.op("Add", [b.op("Mul", [e, s]), a]) for e, s, a in ((y, high, at_y), (x, wide, at_x))]
    half = b.scalar(0.5, offsets)
    sizes = [b.op("Mul", [half, b.op("Mul", [b.op("Exp", [e]), s])]) for e, s in ((height, high), (width, wide))]
    low = [b.op("Sub", pair) for pair in zip(centres, sizes, strict=True)]
    top = [b.op("Add", pair) for pair in zip(centres, sizes, strict=True)]
    return b.op("Concat", [*low, *top], {"axis": 1})


def _column(b: Builder, x: Tensor, place: int) -> Tensor:
    bounds = [b.constant([n]) for n in (place, place + 1, 1)]
    return b.op("Slice", [x, *bounds])
