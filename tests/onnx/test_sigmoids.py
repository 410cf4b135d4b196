"""Where the digits of a Sigmoid's small values count it is written out; elsewhere it stays."""

from __future__ import annotations

import numpy as np
import onnx.parser
import onnx_ir as ir
import onnxruntime as ort
import pytest

from convertkit.onnx.canonical import canonicalize

_HEAD = '<ir_version: 8, opset_import: ["" : 18]> g (float[N] x) => (float[N] y)'
_ASKED = {
    "logarithm": "{s = Sigmoid(x) y = Log(s)}",
    "with an epsilon": "<float e = {1e-7}> {s = Sigmoid(x) a = Add(e, s) y = Log(a)}",
    "limited": "<float e = {1e-30}> {s = Sigmoid(x) a = Clip(s, e) y = Log(a)}",
    "divisor": "<float e = {3.0}> {s = Sigmoid(x) y = Div(e, s)}",
    "root": "<float e = {0.5}> {s = Sigmoid(x) y = Pow(s, e)}",
    "logarithm of a power": "<float e = {1.05}> {s = Sigmoid(x) a = Pow(s, e) y = Log(a)}",
    "moved": "<int64[1] a = {0}> {s = Sigmoid(x) u = Unsqueeze(s, a) q = Squeeze(u, a) y = Log(q)}",
}
_NOT_ASKED = {
    "product": "{s = Sigmoid(x) y = Mul(x, s)}",
    "far from 0": "<float e = {1.0}> {s = Sigmoid(x) a = Add(s, e) y = Log(a)}",
    "square, as of the sizes of boxes": "<float e = {2.0}> {s = Sigmoid(x) y = Pow(s, e)}",
    "exponent": "<float e = {2.0}> {s = Sigmoid(x) y = Pow(e, s)}",
    "an end": "{y = Sigmoid(x)}",
}
_TRUTH = {
    "logarithm": np.log,
    "with an epsilon": lambda s: np.log(s + np.float32(1e-7)),
    "limited": lambda s: np.log(np.maximum(s, 1e-30)),
    "divisor": lambda s: 3 / s,
    "root": np.sqrt,
    "logarithm of a power": lambda s: 1.05 * np.log(s),
    "moved": np.log,
}


def _canonical(body: str) -> ir.Model:
    return canonicalize(ir.from_proto(onnx.parser.parse_model(f"{_HEAD} {body}")))


def _operators(model: ir.Model) -> set[str]:
    return {node.op_type for node in model.graph}


@pytest.mark.parametrize("name", _ASKED)
def test_small_values_keep_their_digits(name: str) -> None:
    model = _canonical(_ASKED[name])
    assert "Sigmoid" not in _operators(model)
    x = np.array([-80, -40, -13, -1, -0.0, 0, 1e-6, 2, 30, 100], np.float32)
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString())
    truth = _TRUTH[name](1 / (1 + np.exp(-x.astype(np.float64))))
    np.testing.assert_allclose(session.run(None, {"x": x})[0], truth, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("name", _NOT_ASKED)
def test_other_sigmoids_stay(name: str) -> None:
    assert "Sigmoid" in _operators(_canonical(_NOT_ASKED[name]))
