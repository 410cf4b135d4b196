"""A constant signal has no amplitude but its level where a logarithm reads its spectrum."""

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from convertkit.onnx.canonical import canonicalize

SHAPES = {64: "N,64,3,1", 30: "N,30,3,1"}
LOG = "a = ReduceL2(s, parts) t = Add(a, tiny) y = Log(t)"


def model(size: int, onesided: int, tail: str = LOG, more: str = "", ends: str = "one") -> onnx.ModelProto:
    head = f'<ir_version: 10, opset_import: ["" : 20]> g (float[{SHAPES[size]}] x) => (float[N,B,3,K] y{more})'
    constants = f"<float tiny = {{1e-6}}, int64[1] parts = {{-1}}, int64 one = {{1}}, int64 half = {{{size // 2}}}>"
    length = "half" if ends == "half" else ""
    return onnx.parser.parse_model(f"{head} {constants} {{ s = DFT<onesided={onesided}>(x,{length},one) {tail} }}")


def canonical(proto: onnx.ModelProto) -> onnx.ModelProto:
    return ir.to_proto(canonicalize(ir.from_proto(proto)))


def run(proto: onnx.ModelProto, x: np.ndarray) -> list[np.ndarray]:
    return ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("size", SHAPES)
def test_a_constant_signal_has_no_amplitude_but_its_level(size, onesided):
    made = canonical(model(size, onesided))
    onnx.checker.check_model(made, full_check=True)
    rng = np.random.default_rng(0)
    x = np.broadcast_to(rng.uniform(-8, 8, (5, 1, 3, 1)), (5, size, 3, 1)).astype(np.float32)
    (written,), (got,) = run(model(size, onesided), x), run(made, x)
    silent = np.float32(np.log(np.float32(1e-6)))
    np.testing.assert_allclose(got[:, 1:], silent, rtol=1e-6)
    np.testing.assert_allclose(got[:, 0, :, 0], np.log(size * np.abs(x[:, 0, :, 0])), rtol=1e-5)
    assert np.abs(written[:, 1:] - silent).max() > 0.1


@pytest.mark.parametrize("onesided", [0, 1])
def test_other_signals_keep_their_spectrum(onesided):
    rng = np.random.default_rng(1)
    x = (rng.standard_normal((2, 64, 3, 1)) + 3).astype(np.float32)
    made = canonical(model(64, onesided))
    spectrum = np.abs((np.fft.rfft if onesided else np.fft.fft)(x[..., 0].astype(np.float64), axis=1))
    np.testing.assert_allclose(run(made, x)[0][..., 0], np.log(spectrum + 1e-6), rtol=1e-5, atol=1e-5)
    assert [node.op_type for node in canonical(made).graph.node].count("Slice") == 1


UNTOUCHED = {
    "without a logarithm": {"tail": "a = ReduceL2(s, parts) y = Add(a, tiny)"},
    "an output itself": {"tail": LOG + " z = Identity(s)", "more": ", float[N,B,3,2] s"},
    "a signal that is cut": {"ends": "half"},
}


@pytest.mark.parametrize("given", UNTOUCHED.values(), ids=list(UNTOUCHED))
def test_other_transforms_stay_as_they_are(given):
    assert "Slice" not in [node.op_type for node in canonical(model(64, 1, **given)).graph.node]
