"""A delivered model with state goes on to the next target: its start values lie beside it."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import convertkit
from convertkit.artifact import STATE_FILE, TensorSpec
from convertkit.errors import SourceError
from convertkit.state import save_arrays, state_beside, state_sizes
from tests.onnx_models import model, write

START = np.array([[0.5, -1.0, 2.0]], np.float32)
FRAMES = np.random.default_rng(4).standard_normal((4, 2, 3)).astype(np.float32)


def _averaging(folder: Path) -> Path:
    """The mean of a frame and of all before it."""
    folder.mkdir()
    nodes = [
        helper.make_node("Add", ["frame", "state.sum"], ["total"]),
        helper.make_node("Mul", ["total", "half"], ["next_state.sum"]),
        helper.make_node("Tanh", ["next_state.sum"], ["y"]),
    ]
    half = helper.make_tensor("half", TensorProto.FLOAT, [], [0.5])
    ends = {"frame": ["N", 3], "state.sum": ["N", 3]}
    return write(folder, model(nodes, ends, {"y": ["N", 3], "next_state.sum": ["N", 3]}, [half]))


def _sequence(result: convertkit.Result) -> np.ndarray:
    """The outputs for the frames one after the other, from the start values that lie beside the model."""
    with np.load(result.artifact.path.with_name("initial_state.npz")) as stored:
        state = {name: np.repeat(stored[name], 2, 0) for name in stored.files}
    found = []
    for frame in FRAMES:
        answer = result.run({"frame": frame, **state})
        found.append(answer["y"])
        state = {"state.sum": answer["next_state.sum"]}
    return np.stack(found)


def test_state_goes_along_from_file_to_file(tmp_path: Path) -> None:
    source = _averaging(tmp_path / "own")
    np.savez(source.with_name("initial_state.npz"), **{"state.sum": START})
    expected, total = [], np.repeat(START, 2, 0)
    for frame in FRAMES:
        total = (total + frame) / 2
        expected.append(np.tanh(total))
    once = convertkit.export(source, "tflite", output=tmp_path / "tflite")
    again = convertkit.export(once.artifact.path, "onnxruntime", output=tmp_path / "onnx")
    for result in (once, again):
        np.testing.assert_allclose(_sequence(result), np.stack(expected), atol=1e-6)


def test_calibrated_on_a_sequence(tmp_path: Path) -> None:
    source = _averaging(tmp_path / "own")
    np.savez(source.with_name("initial_state.npz"), **{"state.sum": START})
    np.save(tmp_path / "frames.npy", FRAMES.reshape(-1, 3))
    result = convertkit.export(source, "onnxruntime", int8=True, calib=tmp_path / "frames.npy", output=tmp_path / "out")
    assert result.report["passed"]


def test_state_without_start_values_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"has state \(state.sum\), and no initial_state.npz"):
        convertkit.export(_averaging(tmp_path / "own"), "onnxruntime", output=tmp_path / "out")


def test_start_values_of_another_model_are_none_of_this_one(tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    inputs = [TensorSpec("x", (1, 3), "float32"), TensorSpec("state.h", (3,), "float32")]
    save_arrays(tmp_path / STATE_FILE, {"state.h": np.zeros(3, np.float32)})
    assert state_beside(model, inputs) == tmp_path / STATE_FILE
    assert state_beside(model, inputs[:1]) is None
    save_arrays(tmp_path / STATE_FILE, {"state.other": np.zeros(3, np.float32)})
    with pytest.raises(SourceError, match=r"model\.onnx has state \(state\.h\), and no initial_state\.npz"):
        state_beside(model, inputs)


def test_start_values_are_the_same_bytes_whenever_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []
    for name, seconds in (("now.npz", 1e9), ("later.npz", 1.5e9)):
        monkeypatch.setattr(time, "time", lambda seconds=seconds: seconds)
        save_arrays(tmp_path / name, {"state.h": START})
        written.append((tmp_path / name).read_bytes())
    assert written[0] == written[1]


def test_state_has_the_sizes_of_the_other_inputs() -> None:
    shapes = {"x": ("N", "T"), "state.h": ("N", 3)}
    feed = {"state.h": np.zeros((1, 3), np.float32), "x": np.zeros((2, 5), np.float32)}
    assert state_sizes(shapes, feed) == {"N": 2}
