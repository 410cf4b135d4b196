"""Elu, Selu and Celu of small values keep their digits."""

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from convertkit.onnx.canonical import canonicalize
from convertkit.targets.onnxruntime.exponentials import keep_small_exponentials

CURVES = {
    "Elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "Elu<alpha = 0.7>": lambda x: np.where(x > 0, x, 0.7 * np.expm1(x)),
    "Selu": lambda x: 1.0507010221481323 * np.where(x > 0, x, 1.6732631921768188 * np.expm1(x)),
    "Selu<alpha = 1.5, gamma = 0.9>": lambda x: 0.9 * np.where(x > 0, x, 1.5 * np.expm1(x)),
    "Celu<alpha = 0.6>": lambda x: np.where(x > 0, x, 0.6 * np.expm1(np.minimum(x, 0) / 0.6)),
}


def delivered(body: str) -> onnx.ModelProto:
    head = '<ir_version: 8, opset_import: ["" : 18]> g (float[3,n] x) => (float[3,n] y) <float s = {0.1}, int8 z = {0}>'
    model = canonicalize(ir.from_proto(onnx.parser.parse_model(f"{head} {{ {body} }}")))
    keep_small_exponentials(model)
    keep_small_exponentials(model)  # does nothing more
    return ir.to_proto(model)


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("scale", [1e-30, 1e-9, 1e-6, 1e-3, 1.0, 30.0])
def test_digits_are_kept_at_every_scale(curve, scale):
    session = ort.InferenceSession(delivered(f"y = {curve}(x)").SerializeToString(), providers=["CPUExecutionProvider"])
    x = (scale * np.random.default_rng(0).standard_normal((3, 41))).astype(np.float32)
    expected = CURVES[curve](x.astype(np.float64))
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=2e-6, atol=0)


@pytest.mark.parametrize("curve", CURVES)
def test_ends_of_the_range(curve):
    session = ort.InferenceSession(delivered(f"y = {curve}(x)").SerializeToString(), providers=["CPUExecutionProvider"])
    x = np.array([[np.inf, -np.inf, np.nan], [0.0, 3e38, -3e38], [88.0, -104.0, 1e-37]], np.float32)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], CURVES[curve](x.astype(np.float64)), rtol=2e-6)


def test_behind_integers_the_operator_stays():
    made = delivered("q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) y = Elu(d)")
    assert [node.op_type for node in made.graph.node][-1] == "Elu"
