"""Recurrent weights as int8: a third of the bytes, and hardly any noise, also where an exporter rearranged them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

import convertkit
from tests.quantization.models import model_of

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STEPS, FEATURES, HIDDEN = 6, 24, 48
DATA = np.random.default_rng(1).normal(0, 1, (24, STEPS, FEATURES)).astype(np.float32)


def network(op: str, direction: str = "forward", *, rearranged: bool = False) -> onnx.ModelProto:
    """One recurrent layer over (steps, 1, features); ``rearranged``: its gates come joined from two parts."""
    rng = np.random.default_rng(0)
    count = 2 if direction == "bidirectional" else 1
    rows = GATES[op] * HIDDEN
    # The rows of a gate differ in size, as trained ones do.
    spread = np.exp(rng.normal(0, 0.5, (1, rows, 1)))
    w = (rng.normal(0, 0.3, (count, rows, FEATURES)) * spread).astype("f4")
    constants = {
        "r": (rng.normal(0, 0.1, (count, rows, HIDDEN)) * spread).astype("f4"),
        "b": rng.normal(0, 0.1, (count, 2 * rows)).astype("f4"),
    }
    options = {"linear_before_reset": 1} if op == "GRU" else {}
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], "time_first", perm=[1, 0, 2]),
        helper.make_node(op, ["t", "w", "r", "b"], ["y"], "layer", direction=direction, hidden_size=HIDDEN, **options),
    ]
    if rearranged:
        half = rows // 2
        constants |= {"first": w[0, :half], "last": w[0, half:], "zero": np.array([0])}
        nodes = [
            helper.make_node("Concat", ["first", "last"], ["joined"], "join", axis=0),
            helper.make_node("Unsqueeze", ["joined", "zero"], ["w"], "lift"),
            *nodes,
        ]
    else:
        constants["w"] = w
    return model_of(nodes, constants, {"x": [1, STEPS, FEATURES]}, {"y": [STEPS, count, 1, HIDDEN]})


@pytest.mark.parametrize(
    ("op", "direction", "rearranged", "target", "precision"),
    [
        ("LSTM", "forward", False, "tflite", "w8"),
        ("LSTM", "bidirectional", False, "tflite", "w4"),
        ("LSTM", "forward", True, "tflite", "int8"),
        ("GRU", "reverse", False, "tflite", "w8"),
        ("GRU", "bidirectional", False, "onnxruntime", "w8"),
        ("GRU", "forward", True, "tflite", "int8"),
        ("RNN", "forward", False, "tflite", "w8"),
        ("RNN", "bidirectional", False, "onnxruntime", "w4"),
    ],
)
def test_small_and_close(
    tmp_path: Path, op: str, direction: str, rearranged: bool, target: str, precision: str
) -> None:
    path = tmp_path / "float.onnx"
    onnx.save(network(op, direction, rearranged=rearranged), path)
    result = convertkit.export(path, target, output=tmp_path / "out", calib={"x": DATA}, **{precision: True})
    session = ort.InferenceSession(path)
    expected = np.stack([session.run(None, {"x": x[None]})[0] for x in DATA[:8]])
    got = np.stack([result.run({"x": x[None]})["y"] for x in DATA[:8]])
    assert -10 * np.log10(np.square(got - expected).sum() / np.square(expected).sum()) > 32
    weights = 4 * (2 if direction == "bidirectional" else 1) * GATES[op] * HIDDEN * (FEATURES + HIDDEN)
    plain = convertkit.export(path, target, output=tmp_path / "plain")
    assert result.artifact.size_bytes < plain.artifact.size_bytes - 0.6 * weights
