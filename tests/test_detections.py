"""Detections as part of the model: a detector's numbers become its best boxes, against plain loops over them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import convertkit
from convertkit.artifact import TensorSpec
from convertkit.compare import verify
from convertkit.errors import UsageError
from convertkit.options.flags import options_from
from convertkit.processing.detection_reference import detected
from convertkit.processing.detection_words import Anchors, Suppression
from convertkit.processing.detections import detections_of
from convertkit.processing.words import parse_postprocess
from tests import onnx_models

COUNT, CLASSES = 47, 3


def raw(width: int, seed: int = 0) -> np.ndarray:
    """Boxes of centre and size in 0 to 1 with ``width`` numbers behind them, for two images: (2, COUNT, 4 + width)."""
    rng = np.random.default_rng(seed)
    boxes = np.concatenate([rng.uniform(0, 1, (2, COUNT, 2)), rng.uniform(0.1, 0.5, (2, COUNT, 2))], -1)
    return np.concatenate([boxes, rng.uniform(0, 1, (2, COUNT, width))], -1).astype(np.float32)


def loops(boxes: np.ndarray, scores: np.ndarray, overlap: float, least: float, most: int, way: str = "best"):
    """Of one image what stays of corners (n, 4) and scores (n, classes): rows of score, class and place, best first."""
    candidates = []
    for place, row in enumerate(scores):
        kinds = range(len(row)) if way == "multi" else [int(np.argmax(row))]
        candidates += [(float(row[kind]), kind, place) for kind in kinds if row[kind] > least]
    kept: list[tuple[float, int, int]] = []
    for score, kind, place in sorted(candidates, key=lambda each: -each[0]):
        rivals = [other for _, rival, other in kept if way == "agnostic" or rival == kind]
        if all(over_union(boxes[place], boxes[other]) <= overlap for other in rivals):
            kept.append((score, kind, place))
    return kept[:most]


def over_union(a: np.ndarray, b: np.ndarray) -> float:
    shared = max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    return shared / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared)


def corners(centred: np.ndarray) -> np.ndarray:
    half = centred[..., 2:4] / 2
    return np.concatenate([centred[..., :2] - half, centred[..., :2] + half], -1)


def sigmoid(value: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-value))


def softmax(value: np.ndarray) -> np.ndarray:
    raised = np.exp(value)
    return raised / raised.sum(-1, keepdims=True)


def agrees(found: dict[str, np.ndarray], boxes: np.ndarray, kept: list, image: int) -> None:
    """The results of one image are these rows, and zeros behind them."""
    count = len(kept)
    assert found["detection_count"][image] == count
    np.testing.assert_allclose(found["detection_scores"][image, :count], [row[0] for row in kept], rtol=1e-5)
    assert found["detection_classes"][image, :count].tolist() == [row[1] for row in kept]
    expected = boxes[[row[2] for row in kept]].reshape(count, 4)
    np.testing.assert_allclose(found["detection_boxes"][image, :count], expected, rtol=1e-5, atol=1e-6)
    for name in ("detection_boxes", "detection_scores", "detection_classes"):
        assert not found[name][image, count:].any()


def passing(folder: Path, **shapes: list[int | str]) -> Path:
    """A model whose outputs ``y``, ``z`` are its inputs ``x``, ``w``: the detector's own numbers are given."""
    ends = dict(zip(("x", "w"), shapes.items(), strict=False))
    nodes = [helper.make_node("Identity", [given], [name]) for given, (name, _) in ends.items()]
    inputs = {given: shape for given, (_, shape) in ends.items()}
    return onnx_models.write(folder, onnx_models.model(nodes, inputs, dict(shapes)))


TARGETS = ("onnxruntime", "tflite", "openvino", "coreml")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("way", ["best", "agnostic", "multi"])
def test_one_output_as_of_yolo(target, way, tmp_path):
    """Candidates along the last axis: boxes, objectness, scores; each box for its best class, for all, or in each."""
    given = raw(1 + CLASSES)
    words = "nms:9,iou:0.3,score:0.2,cxcywh,objectness,columns" + ("" if way == "best" else f",{way}")
    source = passing(tmp_path, y=[2, 5 + CLASSES, COUNT])
    made = convertkit.export(source, target, postprocess=words, output=tmp_path / "out")
    found = made.run({"x": np.ascontiguousarray(given.transpose(0, 2, 1))})
    for image in range(2):
        boxes, scores = corners(given[image, :, :4]), given[image, :, 5:] * given[image, :, 4:5]
        kept = loops(boxes, scores, 0.3, 0.2, 9, way)
        assert len(kept) >= 5
        agrees(found, boxes, kept, image)


@pytest.mark.parametrize("target", TARGETS)
def test_two_outputs_as_of_ssd(target, tmp_path):
    """Offsets from anchors, y first; a background among the scores, which are logits; and the batch stays dynamic."""
    rng = np.random.default_rng(2)
    anchors = raw(0, seed=5)[0]
    np.save(tmp_path / "anchors.npy", anchors)
    offsets = rng.normal(0, 1, (2, COUNT, 4)).astype(np.float32)
    logits = rng.normal(0, 2, (2, COUNT, 1 + CLASSES)).astype(np.float32)
    words = (
        "nms:40,iou:0.5,score:0.6,cycxhw,softmax,background,multi,boxes:y,scores:z,"
        f"anchors:{tmp_path / 'anchors.npy'},scale:10,5,exp"
    )
    source = passing(tmp_path, y=["N", COUNT, 4], z=["N", COUNT, 1 + CLASSES])
    static = {"N": 2} if target in ("tflite", "coreml") else {}
    made = convertkit.export(source, target, postprocess=words, output=tmp_path / "out", static=static)
    found = made.run({"x": offsets, "w": logits})
    decoded = np.concatenate([
        offsets[..., :2] / 10 * anchors[:, 2:] + anchors[:, :2], np.exp(offsets[..., 2:] / 5) * anchors[:, 2:],
    ], -1)  # fmt: skip
    for image in range(2):
        boxes, scores = corners(decoded[image])[:, [1, 0, 3, 2]], softmax(logits[image])[:, 1:]
        kept = loops(boxes, scores, 0.5, 0.6, 40, "multi")
        assert 10 <= len(kept) < 40
        agrees(found, boxes, kept, image)


@pytest.mark.parametrize("target", TARGETS)
def test_points_behind_boxes_as_of_blazeface(target, tmp_path):
    """Sizes are linear, one class has scores without an axis, and points move with their anchors."""
    rng = np.random.default_rng(3)
    anchors = np.concatenate([rng.uniform(0, 1, (COUNT, 2)), np.full((COUNT, 2), 1.5)], -1)
    np.save(tmp_path / "anchors.npy", anchors)
    offsets = rng.uniform(5, 40, (1, COUNT, 8)).astype(np.float32)
    logits = rng.normal(0, 2, (1, COUNT)).astype(np.float32)
    words = (
        f"nms:9,iou:0.3,score:0.5,cxcywh,sigmoid,points:2,boxes:y,scores:z,anchors:{tmp_path / 'anchors.npy'},scale:128"
    )
    source = passing(tmp_path, y=[1, COUNT, 8], z=[1, COUNT])
    made = convertkit.export(source, target, postprocess=words, output=tmp_path / "out")
    found = made.run({"x": offsets, "w": logits})
    centred = np.concatenate([offsets[0, :, :2] / 128 * 1.5 + anchors[:, :2], offsets[0, :, 2:4] / 128 * 1.5], -1)
    kept = loops(corners(centred), sigmoid(logits[0])[:, None], 0.3, 0.5, 9)
    agrees(found, corners(centred), kept, 0)
    points = (offsets[0, :, 4:].reshape(-1, 2, 2) / 128 * 1.5 + anchors[:, None, :2]).reshape(-1, 4)
    expected = points[[row[2] for row in kept]]
    np.testing.assert_allclose(found["detection_points"][0, : len(kept)], expected, rtol=1e-5)
    assert not found["detection_points"][0, len(kept) :].any()


@pytest.mark.parametrize("form", ["xyxy", "yxyx", "xywh", "cxcywh", "cycxhw"])
def test_every_form_of_a_box(form):
    """The reference itself: the same box in five spellings."""
    left, top, right, bottom = 0.1, 0.2, 0.5, 0.9
    spelt = {
        "xyxy": (left, top, right, bottom), "yxyx": (top, left, bottom, right), "xywh": (left, top, 0.4, 0.7),
        "cxcywh": (0.3, 0.55, 0.4, 0.7), "cycxhw": (0.55, 0.3, 0.7, 0.4),
    }[form]  # fmt: skip
    how = Suppression(1, 0.5, 0.25, form)
    given = np.array([[[*spelt, 0.75]] * 9], np.float32)
    found = detected({"y": given}, detections_of(how, only(given)))
    np.testing.assert_allclose(found["detection_boxes"][0, 0], (left, top, right, bottom), rtol=1e-6)


def only(given: np.ndarray) -> tuple[TensorSpec]:
    """The interface of a model whose one output is that."""
    return (TensorSpec("y", given.shape, "float32"),)


def test_a_score_that_only_reaches_the_least_is_not_told():
    given = np.array([[[0, 0, 1, 1, 0.25], [4, 4, 5, 5, 0.2500001], *[[9, 9, 10, 10, 0]] * 7]], np.float32)
    plan = detections_of(Suppression(3, 0.5, 0.25, "xyxy"), only(given))
    assert detected({"y": given}, plan)["detection_count"].tolist() == [1]


def test_an_export_is_compared_with_its_plain_source(tmp_path):
    source = passing(tmp_path, y=[1, COUNT, 4 + CLASSES])
    words = "nms:6,iou:0.4,score:0.1,cxcywh"
    made = convertkit.export(source, "tflite", postprocess=words, output=tmp_path / "out")
    assert [spec.classes for spec in made.artifact.outputs] == [None, None, CLASSES, None]
    assert verify(source, tmp_path / "out").passed


def test_another_content_of_the_anchors_is_another_model(tmp_path):
    """The words are the same, and so is the file's name."""
    given, found = raw(0)[:1], []
    scores = np.full((1, COUNT, 1), 0.5, np.float32)
    source = passing(tmp_path, y=[1, COUNT, 4], z=[1, COUNT, 1])
    words = f"nms:6,iou:0.4,score:0.1,cxcywh,boxes:y,scores:z,anchors:{tmp_path / 'a.npy'}"
    for shift in (0.0, 3.0):
        np.save(tmp_path / "a.npy", np.tile(np.array([shift, shift, 1, 1]), (COUNT, 1)))
        made = convertkit.export(
            source, postprocess=words, output=tmp_path / "out", cache=tmp_path / "cache", force=True
        )
        found.append(made.run({"x": given, "w": scores})["detection_boxes"])
    assert np.allclose(found[1][0, 0] - found[0][0, 0], 3, atol=1e-5)


def test_words():
    found = parse_postprocess(
        "cycxhw,score:0.4,nms:20,iou:0.5,multi,softmax,background,boxes:b:0,scores:s,points:5,anchors:a.npy,scale:10,5,exp"
    )
    assert found.suppression == Suppression(
        20, 0.5, 0.4, "cycxhw", multi=True, squash="softmax", background=True, points=5, boxes="b:0", scores="s",
        anchors=Anchors("a.npy", (10, 5), True),
    )  # fmt: skip


GOOD = "nms:9,iou:0.5,score:0.2,xyxy"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("nms:0,iou:0.5,score:0.2,xyxy", "nms:0 is not a step"),
        ("nms:9,score:0.2,xyxy", "iou is missing, how much two boxes may overlap"),
        ("nms:9,iou:0.5,xyxy", "score is missing"),
        ("nms:9,iou:1,score:0.2,xyxy", "iou:1 is not a step"),
        ("nms:9,iou:0.5,score:-1,xyxy", "score:-1 is not a step"),
        ("nms:9,iou:0.5,score:0.2", "what the four numbers of a box are is missing"),
        (f"{GOOD},yxyx", "either xyxy or yxyx"),
        (f"{GOOD},agnostic,multi", "agnostic and multi exclude each other"),
        (f"{GOOD},sigmoid,softmax", "sigmoid and softmax exclude each other"),
        (f"{GOOD},boxes:b", "go together"),
        (f"{GOOD},boxes:b,scores:s,output:o", "output and boxes exclude each other"),
        (f"{GOOD},boxes:b,scores:s,objectness", "objectness lies between"),
        (f"{GOOD},scale:10", "anchors:FILE.npy is missing"),
        (f"{GOOD},anchors:a.npy", "are of centre and size, cxcywh or cycxhw, not xyxy"),
        (f"{GOOD},top:5", "top:5 is not a step"),
        (f"{GOOD},iou:0.4", "iou is given twice"),
    ],
)
def test_bad_words_are_refused_at_the_start(words, sentence):
    with pytest.raises(UsageError, match=sentence):
        options_from({"source": "m.onnx", "postprocess": words})


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("", "which outputs are meant"),
        ("output:none", "none: no such output; there are: y, z"),
        ("output:y,columns", "7 candidates of 47 numbers: leave columns out"),
        ("boxes:y,scores:z", "y has 7 numbers for each candidate, expected 4; points:1 where"),
        ("output:z", "z has 2 numbers for each candidate, too few"),
        ("output:y,anchors:none.npy", "there is no such file"),
        ("output:y,anchors:few.npy", "5 anchors, and the model 47 candidates"),
        ("output:y,anchors:whole.npy", "expected real numbers"),
        ("output:y,anchors:text.npy", "is not an array of NumPy"),
    ],
)
def test_what_does_not_fit_the_model_is_refused(words, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("few.npy", np.ones((5, 4)))
    np.save("whole.npy", np.ones((COUNT, 4), np.int64))
    Path("text.npy").write_text("a")
    source = passing(tmp_path, y=[1, COUNT, 7], z=[1, COUNT, 2])
    with pytest.raises(UsageError, match=sentence):
        convertkit.export(source, postprocess=f"nms:9,iou:0.5,score:0.2,cxcywh,{words}".rstrip(","), output="out")
    assert not Path("out").exists()


def test_a_dynamic_number_of_candidates_is_refused(tmp_path):
    source = passing(tmp_path, y=[1, "n", 7])
    with pytest.raises(UsageError, match="dynamic number of candidates"):
        convertkit.export(source, postprocess=GOOD, output=tmp_path / "out")
