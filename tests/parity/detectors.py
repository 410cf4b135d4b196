"""Small detectors that can be built in many ways: right ones that break ties otherwise, and planted faults.

Each sees an image of 32 × 32: two convolutions make boxes and the scores of three classes at 8 × 8 places with two
anchors each.  On an even image all places away from the border tie.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.parity.variants import OPSET, Builder

GRID, ANCHORS, CLASSES, BEST = 8, 2, 3, 12
COUNT = GRID * GRID * ANCHORS


@dataclass(frozen=True)
class Spelling:
    """How a detector is built; the defaults are the plain model.

    ``rounded`` multiplies scores by 1 ± 2e-7, ``backwards`` looks at the candidates from the last to the first, and
    ``channels`` sums over the image's channels in that order: three that a right runtime may do.
    """

    rounded: bool = False
    backwards: bool = False
    channels: tuple[int, ...] = (0, 1, 2)
    shift: tuple[float, ...] = (0.1, 0.1, 0.2, 0.2)
    anchors: int = 0
    overlap: float = 0.4
    least: float = 0.36
    apart: float = 4.0
    order: tuple[int, ...] = tuple(range(BEST))
    boxes_of: int = 0
    classes_of: int = 0


RIGHT = {
    "scores rounded otherwise": Spelling(rounded=True),
    "ties to the last": Spelling(backwards=True),
    "channels backwards": Spelling(channels=(2, 1, 0)),
    "rounded otherwise and ties to the last": Spelling(rounded=True, backwards=True),
}
FAULTS = {
    "regression of one side": Spelling(shift=(0.1, 0.1, 0.2, 0.21)),
    "regression, 1e-3 of it": Spelling(shift=(0.1001, 0.1001, 0.2, 0.2)),
    "anchors of the next place": Spelling(anchors=1),
    "overlap, less": Spelling(overlap=0.36),
    "overlap, more": Spelling(overlap=0.44),
    "least score, less": Spelling(least=0.35),
    "least score, more": Spelling(least=0.37),
    "classes not apart": Spelling(apart=0.0),
    "worst first": Spelling(order=tuple(range(BEST))[::-1]),
    "the best one twice": Spelling(order=(0, *range(BEST - 1))),
    "boxes of others": Spelling(boxes_of=1),
    "classes of others": Spelling(classes_of=1),
}
ONLY = {
    "overlap, less": ("classwise", "offsets"),
    "overlap, more": ("classwise", "offsets"),
    "least score, less": ("classwise", "offsets"),
    "least score, more": ("classwise", "offsets"),
    "classes not apart": ("offsets",),
    "worst first": ("best",),
    "the best one twice": ("best",),
}
"""Faults that not all detectors can have."""


def detector(kind: str, spelling: Spelling = Spelling()) -> onnx.ModelProto:
    """``best`` takes the best few, ``classwise`` suppresses for each class, ``offsets`` moves classes apart first."""
    b = Builder()
    boxes, scores = _candidates(b, spelling)  # (1, COUNT, 4) and (1, COUNT, CLASSES)
    if spelling.backwards:
        boxes, scores = (
            b.node("Gather", each, b.constant(np.arange(COUNT)[::-1].copy()), axis=1) for each in (boxes, scores)
        )
    found = {"best": _best, "classwise": _classwise, "offsets": _offsets}[kind](b, boxes, scores, spelling)
    names, sizes = ("boxes", "scores", "classes"), ([1, BEST, 4], [1, BEST], [1, BEST])
    if kind != "best":
        sizes = (["n", 4], ["n"], ["n"])
    nodes = [
        *b.nodes,
        *(helper.make_node("Identity", [value], [name]) for value, name in zip(found, names, strict=True)),
    ]
    types = (TensorProto.FLOAT, TensorProto.FLOAT, TensorProto.INT64)
    outputs = [helper.make_tensor_value_info(*each) for each in zip(names, types, sizes, strict=True)]
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 4 * GRID, 4 * GRID])
    graph = helper.make_graph(nodes, kind, [image], outputs, b.initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)


def _candidates(b: Builder, spelling: Spelling) -> tuple[str, str]:
    draw = b.rng.standard_normal
    body, bias = draw((8, 3, 4, 4)) / 7, draw(8) / 2
    heads = {"boxes": draw((ANCHORS * 4, 8, 3, 3)) / 6, "scores": draw((ANCHORS * CLASSES, 8, 3, 3)) / 6}
    biases = {name: draw(len(weight)) / 2 for name, weight in heads.items()}
    sizes = b.rng.uniform(0.12, 0.3, (ANCHORS, 2))
    channels = b.constant(np.array(spelling.channels))
    x = b.node("Gather", "x", channels, axis=1)
    weights = b.constant(body[:, list(spelling.channels)])
    x = b.node("Relu", b.node("Conv", x, weights, b.constant(bias), strides=[4, 4]))
    found = {}
    for name, weight in heads.items():
        y = b.node("Conv", x, b.constant(weight), b.constant(biases[name]), pads=[1, 1, 1, 1])
        y = b.node("Transpose", y, perm=[0, 2, 3, 1])
        found[name] = b.node("Reshape", y, b.constant(np.array([1, COUNT, len(weight) // ANCHORS])))
    scores = b.node("Softmax", found["scores"], axis=-1)
    if spelling.rounded:
        sign = np.where(np.arange(COUNT * CLASSES) * 7 % 5 > 2, 2e-7, -2e-7).reshape(1, COUNT, CLASSES)
        scores = b.node("Mul", scores, b.constant(1 + sign))
    return _decoded(b, found["boxes"], sizes, spelling), scores


def _decoded(b: Builder, regressed: str, sizes: np.ndarray, spelling: Spelling) -> str:
    """Corners (1, COUNT, 4) between 0 and 1."""
    middle = (np.stack(np.meshgrid(*[np.arange(GRID)] * 2, indexing="ij"), -1) + 0.5) / GRID
    centres = np.roll(np.repeat(middle.reshape(-1, 2), ANCHORS, 0), -spelling.anchors * ANCHORS, 0)
    sides = np.tile(sizes, (GRID * GRID, 1))
    shifts = b.node("Mul", regressed, b.constant(np.array(spelling.shift)))
    moved, grown = (_columns(b, shifts, *each) for each in ((0, 2), (2, 4)))
    centre = b.node("Add", b.node("Mul", moved, b.constant(sides)), b.constant(centres))
    half = b.node("Mul", b.node("Exp", grown), b.constant(sides / 2))
    corners = b.node("Concat", b.node("Sub", centre, half), b.node("Add", centre, half), axis=-1)
    return b.node("Clip", corners, b.constant(np.float32(0)), b.constant(np.float32(1)))


def _columns(b: Builder, value: str, start: int, end: int) -> str:
    return b.node("Slice", value, *(b.constant(np.array([each])) for each in (start, end, -1)))


def _best_class(b: Builder, scores: str) -> tuple[str, str]:
    return b.node("ReduceMax", scores, b.constant(np.array([-1])), keepdims=0), b.node(
        "ArgMax", scores, axis=-1, keepdims=0
    )


def _best(b: Builder, boxes: str, scores: str, spelling: Spelling) -> tuple[str, ...]:
    score, kind = _best_class(b, scores)
    b.nodes.append(helper.make_node("TopK", [score, b.constant(np.array([BEST]))], ["top", "places"]))
    order = b.constant(np.array(spelling.order))
    top, places = (b.node("Gather", value, order, axis=1) for value in ("top", "places"))
    wide = b.node(
        "Expand",
        b.node("Unsqueeze", _other(b, places, spelling.boxes_of), b.constant(np.array([-1]))),
        b.constant(np.array([1, 1, 4])),
    )
    return (
        b.node("GatherElements", boxes, wide, axis=1),
        top,
        b.node("GatherElements", kind, _other(b, places, spelling.classes_of), axis=1),
    )


def _classwise(b: Builder, boxes: str, scores: str, spelling: Spelling) -> tuple[str, ...]:
    columns = b.node("Transpose", scores, perm=[0, 2, 1])
    chosen = b.node("NonMaxSuppression", boxes, columns, *_limits(b, spelling))
    kind, place = (b.node("Gather", chosen, b.constant(np.array(each)), axis=1) for each in (1, 2))
    score = b.node("GatherND", columns, chosen)
    order = _falling(b, score)
    kind, place, score = (b.node("Gather", each, order) for each in (kind, place, score))
    rows = b.node("Gather", _first(b, boxes), _other(b, place, spelling.boxes_of))
    if spelling.classes_of:
        kind = b.node("Mod", b.node("Add", kind, b.constant(np.array(1))), b.constant(np.array(CLASSES)))
    return rows, score, kind


def _offsets(b: Builder, boxes: str, scores: str, spelling: Spelling) -> tuple[str, ...]:
    score, kind = _best_class(b, scores)
    away = b.node("Mul", b.node("Cast", kind, to=TensorProto.FLOAT), b.constant(np.float32(spelling.apart)))
    moved = b.node("Add", boxes, b.node("Unsqueeze", away, b.constant(np.array([-1]))))
    alone = b.node("Unsqueeze", score, b.constant(np.array([1])))
    chosen = b.node("NonMaxSuppression", moved, alone, *_limits(b, spelling))
    place = b.node("Gather", chosen, b.constant(np.array(2)), axis=1)
    rows = b.node("Gather", _first(b, boxes), _other(b, place, spelling.boxes_of))
    return (
        rows,
        b.node("Gather", _first(b, score), place),
        b.node("Gather", _first(b, kind), _other(b, place, spelling.classes_of)),
    )


def _limits(b: Builder, spelling: Spelling) -> tuple[str, ...]:
    return (
        b.constant(np.array([COUNT])),
        b.constant(np.array([spelling.overlap])),
        b.constant(np.array([spelling.least])),
    )


def _falling(b: Builder, score: str) -> str:
    """Places of the scores (n), best first."""
    b.nodes.append(helper.make_node("TopK", [score, b.node("Shape", score)], ["sorted", "order"]))
    return "order"


def _first(b: Builder, value: str) -> str:
    return b.node("Gather", value, b.constant(np.array(0)), axis=0)


def _other(b: Builder, places: str, by: int) -> str:
    if not by:
        return places
    return b.node("Mod", b.node("Add", places, b.constant(np.array(by))), b.constant(np.array(COUNT)))


def variants(spellings: dict[str, Spelling]) -> list[tuple[str, str]]:
    """(detector, what)."""
    return [(kind, what) for what in spellings for kind in ONLY.get(what, ("best", "classwise", "offsets"))]
