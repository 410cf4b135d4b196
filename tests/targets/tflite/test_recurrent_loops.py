"""Sequences longer than what is written out: several steps in each turn of a WHILE, and a rest behind it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from convertkit.onnx.load import load_model
from convertkit.targets.tflite.compile import compile_model
from convertkit.targets.tflite.handlers.steps import MAX_STEPS
from convertkit.targets.tflite.passes import Options

GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}


def recurrent(kind: str, steps: int, lengths: list[int] | None, linear: int) -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    rows = GATES[kind] * 6
    shapes = {"w": (2, rows, 4), "r": (2, rows, 6), "b": (2, 2 * rows)}
    stored = [numpy_helper.from_array((rng.standard_normal(s) / 2).astype(np.float32), n) for n, s in shapes.items()]
    names = ["x", "w", "r", "b"]
    if lengths is not None:
        stored.append(numpy_helper.from_array(np.array(lengths, np.int32), "lengths"))
        names.append("lengths")
    options = {"linear_before_reset": linear} if kind == "GRU" else {}
    node = helper.make_node(kind, names, ["y", "last"], hidden_size=6, direction="bidirectional", **options)
    values = {"x": [steps, 3, 4], "y": [steps, 2, 3, 6], "last": [2, 3, 6]}
    infos = [helper.make_tensor_value_info(name, 1, shape) for name, shape in values.items()]
    graph = helper.make_graph([node], "g", infos[:1], infos[1:], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


@pytest.mark.parametrize(("kind", "linear"), [("GRU", 0), ("GRU", 1), ("LSTM", 0), ("RNN", 0)])
@pytest.mark.parametrize("steps", [3, MAX_STEPS + 3, 50])
@pytest.mark.parametrize("ragged", [False, True])
def test_right_in_every_call(tmp_path: Path, kind: str, linear: int, steps: int, ragged: bool) -> None:
    import onnxruntime
    from ai_edge_litert.interpreter import Interpreter

    onnx.save(recurrent(kind, steps, [steps, steps // 2, 1] if ragged else None, linear), tmp_path / "m.onnx")
    compile_model(load_model(tmp_path / "m.onnx"), Options()).write(tmp_path / "m.tflite")
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    runner = Interpreter(str(tmp_path / "m.tflite")).get_signature_runner()
    for call in range(3):
        x = np.random.default_rng(call).standard_normal((steps, 3, 4)).astype(np.float32)
        found = runner(x=x)
        for name, wanted in zip(("y", "last"), session.run(None, {"x": x}), strict=True):
            assert np.abs(found[name] - wanted).max() <= 1e-5
