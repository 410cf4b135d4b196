"""Activations of float64 and float16 that ONNX Runtime has no kernel of, in ONNX Runtime all the same."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx.reference import ReferenceEvaluator

from convertkit.onnx.canonical import canonicalize

_X = np.array([-800, -100, -20, -3, -1, -0.5, -1e-4, -1e-8, 0, 1e-8, 1e-4, 0.5, 1, 3, 20, 100, 800])
_ACTIVATIONS = [
    *("Cosh", "Elu", "Elu <alpha = 0.3>", "HardSigmoid", "HardSigmoid <alpha = 0.5, beta = 0.1>", "HardSwish"),
    *("LeakyRelu", "LeakyRelu <alpha = -0.5>", "Mish", "Selu", "Selu <alpha = 1.2, gamma = 1.1>", "Sinh", "Softplus"),
    *("Softsign", "Tan", "ThresholdedRelu", "ThresholdedRelu <alpha = 0.3>"),
]


def _model(activation: str, kind: str, opset: int) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {opset}]> g ({kind}[N] x) => ({kind}[N] y) {{ y = {activation} (x) }}'
    )


def _run(proto: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    model = canonicalize(ir.from_proto(proto))
    (y,) = ort.InferenceSession(ir.to_proto(model).SerializeToString()).run(None, {"x": x})
    return np.asarray(y)


@pytest.mark.parametrize("opset", [18, 20, 22])
@pytest.mark.parametrize("activation", _ACTIVATIONS)
def test_float64(activation: str, opset: int) -> None:
    proto = _model(activation, "double", opset)
    with np.errstate(all="ignore"):
        (want,) = ReferenceEvaluator(proto).run(None, {"x": _X})
    if activation == "Softplus":  # the evaluator's is infinite above 709
        want = np.logaddexp(0, _X)
    if activation == "Mish":
        want = _X * np.tanh(np.logaddexp(0, _X))
    # Attributes are float32: the evaluator computes with 0.01 as a number of float64.
    np.testing.assert_allclose(_run(proto, _X), want, rtol=1e-6, atol=1e-14)


_SMALL = {
    "Elu": np.expm1,
    "Softplus": lambda x: np.log1p(np.exp(x)),
    "Mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "Sinh": np.sinh,
}


@pytest.mark.parametrize("activation", _SMALL)
def test_small_results_of_float64_keep_their_digits(activation: str) -> None:
    """``exp(x) - 1`` has half of them at -1e-8, and ``log(1 + exp(x))`` is 0 below -37."""
    x = -np.logspace(-300, 2.6, 400)
    found = _run(_model(activation, "double", 18), x)
    np.testing.assert_allclose(found, _SMALL[activation](x), rtol=1e-11, atol=0)


@pytest.mark.parametrize("opset", [14, 18, 21])
def test_softplus_of_float16_stays_finite(opset: int) -> None:
    x = _X.astype(np.float16)
    found = _run(_model("Softplus", "float16", opset), x)
    np.testing.assert_allclose(found.astype(np.float64), np.logaddexp(0, x.astype(np.float64)), rtol=2e-3, atol=1e-7)


@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize("flags", ["", "<keepdims = 0>"])
def test_a_sum_of_powers_of_float16_stays_finite(opset: int, flags: str) -> None:
    stated, given = ("<int64[1] a = {1}> ", ", a") if opset == 18 else ("", "")
    attributes = flags if opset == 18 else "<axes = [1], keepdims = 0>" if flags else "<axes = [1]>"
    proto = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {opset}]> g (float16[2,3] x) => (float16[n,m] y) '
        f"{stated}{{ y = ReduceLogSumExp {attributes} (x{given}) }}"
    )
    if flags:
        del proto.graph.output[0].type.tensor_type.shape.dim[1]
    x = np.array([[2000, 3, -5], [-100, 0.5, 1]], np.float16)
    want = np.logaddexp.reduce(x.astype(np.float64), axis=1, keepdims=not flags)
    np.testing.assert_allclose(_run(proto, x).astype(np.float64), want, rtol=2e-3)


def test_what_has_a_kernel_stays() -> None:
    model = canonicalize(ir.from_proto(_model("Softplus", "float", 18)))
    assert [node.op_type for node in model.graph] == ["Softplus"]
