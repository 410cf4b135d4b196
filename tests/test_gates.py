"""Gates that can fail: data that does not belong to the model is told before it lets everything pass."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import convertkit
from convertkit.data.evaluation import at_chance, find_metric
from convertkit.data.feeds import load_feeds
from convertkit.errors import FeedError, UsageError
from convertkit.options.inputs import parse_normalization
from tests.onnx_models import mlp, model, write

RNG = np.random.default_rng(3)
CLASSES = RNG.integers(0, 10, 200)
SCORES = np.eye(10, dtype=np.float32)[CLASSES] + 0.1 * RNG.standard_normal((200, 10)).astype(np.float32)


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (
            CLASSES + 1,
            "the labels are 1 to 10, and the output has 10 classes, 0 to 9: they count from 1; store label - 1",
        ),
        (CLASSES + 5, "the labels are 5 to 14, and the output has 10 classes, 0 to 9$"),
        (CLASSES - 1, "the labels are -1 to 8"),
        (np.eye(10)[CLASSES], r"one-hot, float64 of the shape 200×10; .* label = label.argmax\(1\)"),
        (np.eye(10, dtype=np.int64)[CLASSES], "one-hot, int64"),
        (CLASSES.astype(np.float32), r"float32 that hold whole numbers; .* label = label.astype\('int64'\)"),
        (CLASSES + 0.5, "float64 and no whole numbers, and the output has 10 scores for each sample"),
    ],
)
@pytest.mark.parametrize("metric", [None, "top1"])
def test_labels_that_are_none_of_the_classes(metric, labels, told) -> None:
    with pytest.raises(FeedError, match=told):
        find_metric(metric, labels, SCORES)


def test_labels_of_other_shapes_are_no_classes() -> None:
    assert find_metric(None, SCORES + 0.5, SCORES).name == "mse"
    assert find_metric(None, CLASSES.astype(np.float32), SCORES[:, :1]).name == "mse"
    assert find_metric("mse", np.eye(10)[CLASSES], SCORES).name == "mse"


def doubt(labels: np.ndarray, scores: np.ndarray, name: str | None = None) -> str:
    metric = find_metric(name, labels, scores)
    return at_chance(metric, labels, scores, metric.value(labels, scores))


def test_an_accuracy_is_believed() -> None:
    assert doubt(CLASSES, SCORES) == ""


def test_guessing_is_told() -> None:
    told = doubt(RNG.integers(0, 10, 200), SCORES)
    assert "% right on 200 samples, and guessing among 10 classes has 10 %: its preprocessing" in told


def test_shifted_labels_are_told_with_the_shift() -> None:
    nine = np.minimum(CLASSES, 8)
    scores = np.eye(10, dtype=np.float32)[nine + 1]
    assert doubt(nine, scores).endswith("with label + 1 it would be 100.0 %")
    assert doubt(nine + 1, np.eye(10, dtype=np.float32)[nine]).endswith("with label - 1 it would be 100.0 %")


def test_an_auc_that_guesses_or_is_swapped() -> None:
    truth = RNG.integers(0, 2, 200)
    good = truth[:, None] + 0.3 * RNG.standard_normal((200, 1))
    assert doubt(truth, good, "auc") == ""
    assert "1 and 0 are swapped" in doubt(truth, -good, "auc")
    assert "guessing has 50 %" in doubt(truth, RNG.standard_normal((200, 1)), "auc")


def labelled(folder: Path, labels: np.ndarray, count: int = 120) -> Path:
    x = np.random.default_rng(5).standard_normal((count, 5)).astype(np.float32)
    np.savez(folder / "eval.npz", x=x, label=labels)
    return folder / "eval.npz"


def test_a_gate_on_guesses_is_refused_and_a_measurement_is_told(tmp_path) -> None:
    source = write(tmp_path, mlp())
    data = labelled(tmp_path, np.random.default_rng(8).integers(0, 3, 120))
    with pytest.raises(FeedError, match="--max-drop would let everything pass"):
        convertkit.export(source, eval=data, max_drop=1.0, output=tmp_path / "gated")
    made = convertkit.export(source, eval=data, output=tmp_path / "out")
    assert [note for note in made.report["notes"] if "guessing among 3 classes" in note]


@pytest.mark.parametrize(("count", "told"), [(8, True), (20, False)])
def test_few_samples_to_measure_ranges_on(tmp_path, count, told) -> None:
    source = write(tmp_path, mlp())
    data = np.random.default_rng(0).standard_normal((count, 5)).astype(np.float32)
    made = convertkit.export(source, int8=True, calib=data, output=tmp_path / "out")
    few = [note for note in made.report["notes"] if f"{count} samples to measure ranges on; give at least 20" in note]
    assert bool(few) == told
    plain = convertkit.export(source, calib=data, output=tmp_path / "plain")
    assert not [note for note in plain.report["notes"] if "to measure ranges on" in note], "no range is measured"


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    folder.mkdir()
    for index in range(3):
        pixels = np.random.default_rng(index).integers(0, 256, (8, 8, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{index}.png")
    return folder


@pytest.fixture
def image_model(tmp_path: Path) -> Path:
    from onnx import helper

    nodes = [helper.make_node("GlobalAveragePool", ["x"], ["y"])]
    return write(tmp_path, model(nodes, {"x": ["N", 3, 8, 8]}, {"y": ["N", 3, 1, 1]}))


@pytest.mark.parametrize(
    ("given", "write_instead"),
    [
        ("x:0.5/0.5", "write x:127.5/127.5"),
        ("x:0.485,0.456,0.406/0.229,0.224,0.225", "write x:123.675,116.28,103.53/58.395,57.12,57.375"),
        ("x:0/0.5", "write x:0/127.5"),
    ],
)
def test_normalization_in_units_of_one(tmp_path, pictures, image_model, given, write_instead) -> None:
    with pytest.raises(UsageError, match=write_instead):
        convertkit.export(image_model, calib=pictures, normalization=given, output=tmp_path / "out")


@pytest.mark.parametrize("given", ["x:0/1", "x:127.5/127.5", "x:0/255"])
def test_normalization_in_units_of_pixels(tmp_path, pictures, image_model, given) -> None:
    made = convertkit.export(image_model, calib=pictures, normalization=given, output=tmp_path / "out")
    scaled = [note for note in made.report["notes"] if note.startswith("images were scaled")]
    assert bool(scaled) == (given == "x:0/255"), "the default, said or not, is told"


def test_images_that_are_scaled_by_default_are_told(tmp_path, pictures, image_model) -> None:
    made = convertkit.export(image_model, calib=pictures, output=tmp_path / "out")
    assert [note for note in made.report["notes"] if note.startswith("images were scaled to 0..1")] == [
        "images were scaled to 0..1 (pixel / 255); where training did otherwise, "
        "--normalization x:MEAN/STD in units of pixels"
    ]


def test_a_normalization_without_its_input() -> None:
    with pytest.raises(UsageError, match=r"names no input: write INPUT:127\.5/127\.5 with the model's name for it"):
        parse_normalization("127.5/127.5")


def test_one_array_for_one_input_is_taken(tmp_path) -> None:
    source = write(tmp_path, mlp())
    data = np.random.default_rng(0).standard_normal((20, 5)).astype(np.float32)
    np.savez(tmp_path / "calib.npz", images=data)
    assert convertkit.export(source, calib=tmp_path / "calib.npz", output=tmp_path / "out").report["passed"]
    np.savez(tmp_path / "eval.npz", images=data, label=np.zeros(20, np.int64))
    from convertkit.artifact import TensorSpec

    feeds = load_feeds(tmp_path / "eval.npz", (TensorSpec("x", ("N", 5), "float32"),), label=True)
    assert len(feeds) == 20
    assert {name for feed in feeds for name in feed} == {"x", "label"}
