"""Metrics on labels that fit and on such as do not, and metrics of the user's own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from convertkit.data.evaluation import find_metric
from convertkit.errors import FeedError, UsageError
from convertkit.recipe import ExportOptions
from convertkit.records import Evaluation
from convertkit.steps.judge import gate_error
from tests import onnx_models
from tests.command_line import apart, here

SCORES = np.float32([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]])
CLASSES = np.array([1, 0, 0, 0])


@pytest.mark.parametrize(
    ("name", "labels", "value"),
    [
        (None, CLASSES, 75.0),
        ("top1", CLASSES[:, None], 75.0),
        ("auc", np.array([1, 0, 1, 0]), 100.0),
        (None, SCORES + 0.5, 0.25),
        ("mse", SCORES.reshape(4, 2, 1), 0.0),
    ],
)
def test_metrics(name: str | None, labels: np.ndarray, value: float) -> None:
    assert find_metric(name, labels, SCORES).value(labels, SCORES) == pytest.approx(value)


@pytest.mark.parametrize(
    ("name", "labels", "scores", "told"),
    [
        (
            "top1",
            np.eye(2, dtype=int)[CLASSES],
            SCORES,
            r"one-hot, int64 of the shape 4×2; .*label = label.argmax\(1\)",
        ),
        ("auc", np.eye(2, dtype=int)[CLASSES], SCORES, "metric auc: labels of the shape 4×2; expected one class"),
        ("top1", CLASSES, SCORES[:3], "metric top1: outputs of the shape 3×2 hold no scores for each sample"),
        (None, CLASSES, SCORES[:, :0], "outputs of the shape 4×0 hold no scores"),
        (None, SCORES[:, :1], SCORES, "the labels are float32 and no whole numbers, and the output has 2 scores"),
        ("own_metric:fails", CLASSES, SCORES, r"--metric own_metric:fails raised KeyError: 'x' \(own_metric.py:2\)"),
        ("own_metric:many", CLASSES, SCORES, "--metric own_metric:many raised TypeError"),
    ],
)
@pytest.mark.usefixtures("own")
def test_what_does_not_fit_is_one_sentence(name: str | None, labels: np.ndarray, scores: np.ndarray, told: str) -> None:
    with pytest.raises(FeedError, match=told):
        find_metric(name, labels, scores).value(labels, scores)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nothing", "unknown; use top1, auc, mse or pkg.mod:func"),
        ("own_metric:none_such", "--metric own_metric:none_such is not a function"),
        ("no_such_module:f", "--metric no_such_module:f cannot be imported: No module named"),
        ("own_broken:f", r"cannot be imported: ZeroDivisionError: division by zero \(own_broken.py:1\)"),
    ],
)
@pytest.mark.usefixtures("own")
def test_no_such_metric(name: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        find_metric(name, CLASSES, SCORES)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the user's own modules."""
    (tmp_path / "own_metric.py").write_text(
        "def fails(labels, outputs):\n    return {}['x']\n\n"
        "def many(labels, outputs):\n    return outputs\n\n"
        "def right(labels, outputs):\n    return 100.0 * (outputs.argmax(-1) == labels).mean()\n"
    )
    (tmp_path / "own_broken.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_a_metric_beside_the_script(own: Path) -> None:
    model = onnx_models.write(own, onnx_models.mlp(), "mlp.onnx")
    np.savez(own / "eval.npz", x=np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32), label=CLASSES)
    flags = ["--eval", "eval.npz", "--metric", "own_metric:right", "--max-drop", "0"]
    said = apart("export", model, *flags, "-o", "out", cwd=own)
    assert said.code == 0, said.err
    assert "own_metric:right" in said.out


def test_an_unknown_metric_is_refused_before_any_step(tmp_path: Path) -> None:
    model = onnx_models.write(tmp_path, onnx_models.mlp(), "mlp.onnx")
    np.savez(tmp_path / "eval.npz", x=np.zeros((4, 5), np.float32), label=CLASSES)
    said = here("export", model, "--eval", tmp_path / "eval.npz", "--metric", "topp1", "-o", tmp_path / "out")
    assert said.code == 2
    assert said.err.startswith("convertkit: --metric topp1: unknown; use top1, auc, mse or pkg.mod:func")
    assert not (tmp_path / "out").exists()


def test_labels_that_do_not_fit_end_an_export_before_the_target_s_steps(tmp_path: Path) -> None:
    model = onnx_models.write(tmp_path, onnx_models.mlp(), "mlp.onnx")
    rows = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
    np.savez(tmp_path / "eval.npz", x=rows, label=np.zeros((4, 2), np.int64))
    said = here("export", model, "--eval", tmp_path / "eval.npz", "--metric", "top1", "-o", tmp_path / "out")
    assert said.code == 1
    assert "labels of the shape 4×2; expected one class for each sample" in said.err
    assert "canonical-onnx" in said.err
    assert "onnxruntime " not in said.err


def test_an_error_that_grows_is_said_to_rise() -> None:
    evaluation = Evaluation("mse", 4, 0.5, 1.0, 100.0, 1.0)
    int8 = ExportOptions("m.onnx", precision="int8")
    told, *ways = str(gate_error(evaluation, int8)).splitlines()
    assert told == "mse rose from 0.5 to 1: 100 %, --max-drop allows 1"
    assert len(ways) == 3
    assert all(way.startswith("  try   ") for way in ways), "the page lists them as ways out"
    assert str(gate_error(replace(evaluation, metric="top1"), int8)).startswith("top1 fell from")


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({}, ["more samples for --calib", "a larger --max-drop"]),
        ({"precision": "int8"}, ["more samples for --calib", "--w8 instead", "a larger --max-drop"]),
        ({"prune": "0.8"}, ["more samples", "--prune with a smaller share", "--recover:", "a larger --max-drop"]),
        ({"prune": "2:4", "recover": 1.0}, ["more samples", "--prune with a small share", "a larger --max-drop"]),
        (
            {"target_latency": 0.7, "recover": 1.0},
            ["more samples", "--target-latency with a larger", "a larger --max-"],
        ),
        ({"prune": "auto", "recover": 1.0}, ["more samples", "--prune with a small share", "a larger --max-drop"]),
    ],
)
def test_ways_out_of_the_gate_are_those_of_what_was_asked_for(choices: dict[str, object], words: list[str]) -> None:
    evaluation = Evaluation("top1", 4, 100.0, 80.0, 20.0, 1.0)
    options = ExportOptions("m.onnx", **choices)  # type: ignore[arg-type]
    _, *ways = str(gate_error(evaluation, options)).splitlines()
    assert [way.startswith(f"  try   {word}") for way, word in zip(ways, words, strict=True)] == [True] * len(words)


def test_what_a_step_says_of_samples_goes_before_what_is_said_to_all() -> None:
    evaluation = Evaluation("top1", 4, 100.0, 80.0, 20.0, 1.0)
    step = SimpleNamespace(diagnosis={"ways_out": ["--calib with more samples: 9 dB beside 3"]})
    options = ExportOptions("m.onnx", prune="0.8")
    _, first, second, *_ = str(gate_error(evaluation, options, [step])).splitlines()  # type: ignore[list-item]
    assert first == "  try   --calib with more samples: 9 dB beside 3"
    assert second == "  try   --prune with a smaller share"
