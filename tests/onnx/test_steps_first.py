"""Recurrent operators whose batch comes first: ONNX Runtime gets them steps first, in the file and as the source."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import convertkit
from convertkit.onnx.canonical import canonicalize

_STEPS, _BATCH, _FEATURES, _HIDDEN = 3, 2, 4, 5
_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_ACTIVATIONS = {"RNN": ["Softsign"], "GRU": ["HardSigmoid", "Softsign"], "LSTM": ["HardSigmoid", "Softsign", "Tanh"]}


def _model(operator: str, direction: str, layout: int) -> onnx.ModelProto:
    """With lengths, initial states and activations, which ONNX's reference evaluator leaves out."""
    rng = np.random.default_rng(7)
    ways, gates = 1 + (direction == "bidirectional"), _GATES[operator]
    weights = {
        "W": rng.standard_normal((ways, gates * _HIDDEN, _FEATURES)),
        "R": rng.standard_normal((ways, gates * _HIDDEN, _HIDDEN)),
        "B": rng.standard_normal((ways, 2 * gates * _HIDDEN)),
    }
    stored = [numpy_helper.from_array(each.astype(np.float32), name) for name, each in weights.items()]
    stored.append(numpy_helper.from_array(np.array([2, 3], np.int32), "lengths"))
    outputs = ["y", "h"] + ["c"] * (operator == "LSTM")
    states = ["h0"] * (2 if operator == "LSTM" else 1)
    node = helper.make_node(
        operator,
        ["x", "W", "R", "B", "lengths", *states],
        outputs,
        hidden_size=_HIDDEN,
        direction=direction,
        activations=_ACTIVATIONS[operator] * ways,
        **({"layout": 1} if layout else {}),
    )
    shapes = {
        "x": [_STEPS, _BATCH, _FEATURES],
        "h0": [ways, _BATCH, _HIDDEN],
        "y": [_STEPS, ways, _BATCH, _HIDDEN],
        "h": [ways, _BATCH, _HIDDEN],
        "c": [ways, _BATCH, _HIDDEN],
    }
    if layout:
        first = {name: [shape[1], shape[0], *shape[2:]] for name, shape in shapes.items()}
        shapes = {**first, "y": [_BATCH, _STEPS, ways, _HIDDEN]}
    infos = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()}
    graph = helper.make_graph([node], "g", [infos["x"], infos["h0"]], [infos[name] for name in outputs], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _feed(operator: str, direction: str) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """Inputs with the batch first, and what ONNX Runtime gives for them where the steps are first."""
    rng = np.random.default_rng(3)
    ways = 1 + (direction == "bidirectional")
    x = rng.standard_normal((_STEPS, _BATCH, _FEATURES)).astype(np.float32)
    h0 = rng.standard_normal((ways, _BATCH, _HIDDEN)).astype(np.float32)
    session = ort.InferenceSession(_model(operator, direction, 0).SerializeToString())
    y, *last = session.run(None, {"x": x, "h0": h0})
    want = [np.transpose(y, (2, 0, 1, 3)), *(np.swapaxes(each, 0, 1) for each in last)]
    return {"x": np.swapaxes(x, 0, 1).copy(), "h0": np.swapaxes(h0, 0, 1).copy()}, want


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("operator", ["RNN", "GRU", "LSTM"])
def test_the_canonical_form_runs(operator: str, direction: str) -> None:
    feed, want = _feed(operator, direction)
    model = canonicalize(ir.from_proto(_model(operator, direction, 1)))
    found = ort.InferenceSession(ir.to_proto(model).SerializeToString()).run(None, feed)
    for have, each in zip(found, want, strict=True):
        np.testing.assert_allclose(have, each, atol=1e-6)


@pytest.mark.parametrize("target", ["onnxruntime", "tflite"])
def test_it_is_delivered(target: str, tmp_path: Path) -> None:
    onnx.save(_model("GRU", "bidirectional", 1), tmp_path / "gru.onnx")
    result = convertkit.export(tmp_path / "gru.onnx", target, output=tmp_path / "made", no_cache=True)
    feed, want = _feed("GRU", "bidirectional")
    found = result.run(feed)
    for name, each in zip(("y", "h"), want, strict=True):
        np.testing.assert_allclose(found[name], each, atol=1e-5)
