"""Boxes that do not cover each other, through MIL's operation of each system, whatever it pads with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from onnx import numpy_helper, parser

from convertkit.errors import Unsupported
from convertkit.onnx.canonical import canonicalize
from convertkit.targets.coreml.evaluator import TABLE
from convertkit.targets.coreml.suppressions import DOMAIN, MARKS, lower_suppressions
from convertkit.workers.process import Worker
from tests.targets.coreml.apple_packages import Arrays, Row, compile_text

IMAGES, CLASSES, BOXES, MOST = 2, 3, 23, 5
ENDS = f"float[{IMAGES},{BOXES},4] b, float[{IMAGES},{CLASSES},{BOXES}] s"
LIMITS = {"m": np.int64([MOST]), "o": np.float32([0.3]), "t": np.float32([0.4])}
PUT_BACK = "r = NonMaxSuppression(b, s, m, o, t) g = GatherND(s, r) y = ScatterND(z, r, g)"
SYSTEMS = ("iOS16", "iOS17", "iOS18")


def detections(seed: int = 0, images: int = IMAGES, classes: int = CLASSES) -> Arrays:
    """Corners of which some are flipped, and scores."""
    rng = np.random.default_rng(seed)
    first = rng.uniform(0, 1, (images, BOXES, 2))
    second = first + rng.uniform(0.1, 0.5, (images, BOXES, 2)) * rng.choice([-1, 1], (images, BOXES, 1))
    boxes = np.concatenate([first, second], -1).astype(np.float32)
    return {"b": boxes, "s": rng.uniform(0, 1, (images, classes, BOXES)).astype(np.float32)}


ROWS = [
    Row("corners", ENDS, "int64[R,3] y", "y = NonMaxSuppression(b, s, m, o, t)", LIMITS, detections()),
    Row("older", ENDS, "int64[R,3] y", "y = NonMaxSuppression(b, s, m, o, t)", LIMITS, detections(), target="iOS16"),
    Row(
        "centred",
        ENDS,
        "int64[R,3] y",
        "y = NonMaxSuppression<center_point_box=1>(b, s, m, o, t)",
        LIMITS,
        {**detections(), "b": np.abs(detections()["b"])},
    ),
    Row("without-a-least-score", ENDS, "int64[R,3] y", "y = NonMaxSuppression(b, s, m, o)", LIMITS, detections(3)),
    Row(
        "of-one-class",
        f"float[1,{BOXES},4] b, float[1,1,{BOXES}] s",
        "int64[R,3] y",
        "y = NonMaxSuppression(b, s, m, o, t)",
        {**LIMITS, "m": np.int64([1000])},
        detections(4, 1, 1),
    ),
    Row("only-how-many", ENDS, "int64[R,3] y", "y = NonMaxSuppression(b, s, m)", LIMITS, detections(5)),
    Row(
        "more-than-there-are",
        ENDS,
        "int64[R,3] y",
        "y = NonMaxSuppression(b, s, m, o)",
        {**LIMITS, "m": np.int64([1000])},
        detections(6),
    ),
    Row(
        "no-more-than-the-least-score",
        ENDS,
        "int64[R,3] y",
        "y = NonMaxSuppression(b, s, m, o, t)",
        {**LIMITS, "m": np.int64([BOXES]), "o": np.float32([0.99]), "t": detections()["s"][0, 0, :1]},
        detections(),
    ),
    Row(
        "nothing",
        ENDS,
        "int64[R,3] y",
        "y = NonMaxSuppression(b, s, m, o, t)",
        LIMITS | {"t": np.float32([2])},
        detections(),
    ),
    *[
        Row(
            f"put-back-{system}",
            ENDS,
            f"float[{IMAGES},{CLASSES},{BOXES}] y",
            PUT_BACK,
            {**LIMITS, "z": np.zeros((IMAGES, CLASSES, BOXES), np.float32)},
            detections(),
            target=system,
        )
        for system in SYSTEMS
    ],
    Row(
        "put-back-centred",
        ENDS,
        f"float[{IMAGES},{CLASSES},{BOXES}] y",
        PUT_BACK.replace("Suppression(", "Suppression<center_point_box=1>("),
        {**LIMITS, "z": np.zeros((IMAGES, CLASSES, BOXES), np.float32)},
        {**detections(), "b": np.abs(detections()["b"])},
    ),
    Row(
        "put-back-twice",
        ENDS,
        f"float[{IMAGES},{CLASSES},{BOXES}] y",
        f"{PUT_BACK.replace(' y =', ' v =')} u = NonMaxSuppression(b, s, m, n, t) h = GatherND(s, u) "
        "w = ScatterND(z, u, h) y = Sub(v, w)",
        {**LIMITS, "n": np.float32([0.05]), "z": np.zeros((IMAGES, CLASSES, BOXES), np.float32)},
        detections(),
    ),
    Row(
        "best-class",
        f"{ENDS}, float[{IMAGES},{BOXES}] k",
        f"float[{IMAGES},{BOXES}] y",
        "r = NonMaxSuppression(b, s, m, o, t) p = Gather<axis=1>(r, c) g = GatherND(k, p) y = ScatterND(z, p, g)",
        {**LIMITS, "c": np.int64([0, 2]), "z": np.zeros((IMAGES, BOXES), np.float32)},
        {**detections(), "k": detections(1)["s"][:, 0]},
    ),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_row(row: Row, worker: Worker, tmp_path: Path):
    row.check(worker, tmp_path / "c")


def _none(places: np.ndarray) -> np.ndarray:
    return places


def _zeros(places: np.ndarray) -> np.ndarray:
    return np.where(places < 0, 0, places)


def _behind(places: np.ndarray) -> np.ndarray:
    return np.where(places < 0, BOXES + 7, places)


def _again(places: np.ndarray) -> np.ndarray:
    return np.where(places < 0, places[:, :1], places)


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("padded", [_none, _zeros, _behind, _again])
def test_padding_does_not_matter(padded, system, worker: Worker, tmp_path: Path):
    ours = TABLE["non_maximum_suppression"]

    def told(**arguments: np.ndarray) -> tuple[np.ndarray, ...]:
        boxes, scores, places, *counts = ours(**arguments)
        assert (places < 0).any()
        return (boxes, scores, padded(places), *counts)

    text = f"test ({ENDS}) => (float[{IMAGES},{CLASSES},{BOXES}] y) {{ {PUT_BACK} }}"
    zeros = np.zeros((IMAGES, CLASSES, BOXES), np.float32)
    limits = {**LIMITS, "m": np.int64([BOXES]), "o": np.float32([0.05])}
    made = compile_text(worker, text, tmp_path / "c", system, **limits, z=zeros)
    TABLE.add("non_maximum_suppression", told)
    try:
        made.agree(detections(2), 0)
    finally:
        TABLE.add("non_maximum_suppression", ours)


def test_a_picture_without_a_thing_has_no_tensor_without_elements(worker: Worker, tmp_path: Path):
    """Every size of the package is known."""
    text = f"test ({ENDS}) => (float[{IMAGES},{CLASSES},{BOXES}] y) {{ {PUT_BACK} }}"
    zeros = np.zeros((IMAGES, CLASSES, BOXES), np.float32)
    made = compile_text(worker, text, tmp_path / "c", **LIMITS, z=zeros)
    assert "non_maximum_suppression" in made.operations
    assert all(size for step in made.program.block.operations for _, kind in step.outputs for size in kind.shape)
    made.agree({**detections(), "s": zeros}, 0)


def test_other_uses_of_the_rows_keep_them():
    """What is put back into numbers that are not zeros, or added to what is there."""
    shape = (IMAGES, CLASSES, BOXES)
    for body, blank in (
        (PUT_BACK, np.ones(shape, np.float32)),
        (PUT_BACK.replace("ScatterND(", 'ScatterND<reduction="add">('), np.zeros(shape, np.float32)),
    ):
        text = f"test ({ENDS}) => (float[{IMAGES},{CLASSES},{BOXES}] y) {{ {body} }}"
        given = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]>\n{text}')
        stored = {**LIMITS, "z": blank}
        given.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in stored.items())
        model = canonicalize(ir.from_proto(given))
        before = [node.op_type for node in model.graph]
        lower_suppressions(model)
        marked = [node for node in model.graph if (node.domain, node.op_type) == (DOMAIN, MARKS)]
        assert [node.op_type for node in model.graph] == before
        assert not marked


def test_rows_of_image_and_class_are_not_those_of_boxes():
    """Where there are as many classes as boxes, sizes do not tell."""
    body = "r = NonMaxSuppression(b, s, m, o, t) p = Gather<axis=1>(r, c) g = GatherND(k, p) y = ScatterND(z, p, g)"
    ends = f"float[{IMAGES},{BOXES},4] b, float[{IMAGES},{BOXES},{BOXES}] s, float[{IMAGES},{BOXES}] k"
    text = f"test ({ends}) => (float[{IMAGES},{BOXES}] y) {{ {body} }}"
    given = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]>\n{text}')
    stored = {**LIMITS, "c": np.int64([0, 1]), "z": np.zeros((IMAGES, BOXES), np.float32)}
    given.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in stored.items())
    model = canonicalize(ir.from_proto(given))
    lower_suppressions(model)
    assert not [node for node in model.graph if node.op_type == MARKS]


def test_no_boxes_at_all_are_refused(worker: Worker, tmp_path: Path):
    text = f"test ({ENDS}) => (int64[R,3] y) {{ y = NonMaxSuppression(b, s, m, o, t) }}"
    with pytest.raises(Unsupported, match="at most 0 boxes: the result is always empty"):
        compile_text(worker, text, tmp_path / "c", **{**LIMITS, "m": np.int64([0])})
