"""Logarithms of equal elements are equal where a deviation without an epsilon reads them."""

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.logarithms import widen_logarithms
from convertkit.onnx.runner import OnnxRunner
from convertkit.onnx.save import save_model

Z = (
    "m = ReduceMean(d, axes) c = Sub(d, m) q = Mul(c, c) v = ReduceMean(q, axes) "
    "r = Sqrt(v) t = Add(r, tiny) y = Div(c, t)"
)
BODIES = {
    "a logarithm": "d = Log(x)",
    "decibels": "l = Log(x) d = Mul(l, ten)",
    "the cosine of another view": "l = Cos(x) u = Transpose<perm = [0, 2, 1]>(l) d = Transpose<perm = [0, 2, 1]>(u)",
    "cepstra": "l = Log(x) d = MatMul(l, dense)",
}


def canonical(body: str) -> ir.Model:
    head = '<ir_version: 8, opset_import: ["" : 18]> g (float[1,7,9] x) => (float[1,7,9] y) '
    constants = "<float tiny = {1e-8}, float ten = {10.0}, int64[1] axes = {1}>"
    parsed = onnx.parser.parse_model(f"{head}{constants} {{ {BODIES[body]} {Z} }}")
    weights = np.random.default_rng(3).standard_normal((9, 9)).astype(np.float32)
    parsed.graph.initializer.append(onnx.numpy_helper.from_array(weights, "dense"))
    return canonicalize(ir.from_proto(parsed))


def delivered(body: str) -> onnx.ModelProto:
    model = canonical(body)
    assert widen_logarithms(model) == 1
    assert widen_logarithms(model) == 0  # does nothing more
    return ir.to_proto(model)


@pytest.mark.parametrize("body", BODIES)
def test_equal_elements_have_no_deviation(body):
    made = delivered(body)
    onnx.checker.check_model(made, full_check=True)
    assert [node.op_type for node in made.graph.node].count("Cast") == 2
    session = ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    for number in np.random.default_rng(0).uniform(1e-3, 8, 60).astype(np.float32):
        assert not session.run(None, {"x": np.full((1, 7, 9), number)})[0].any()


@pytest.mark.parametrize("body", BODIES)
def test_the_reference_of_every_step_has_no_deviation_either(body, tmp_path):
    artifact = save_model(canonical(body), tmp_path / "canonical.onnx", "test")
    with OnnxRunner(artifact) as runner:
        for number in np.random.default_rng(0).uniform(1e-3, 8, 60).astype(np.float32):
            assert not runner.run({"x": np.full((1, 7, 9), number)})["y"].any()


def test_other_logarithms_stay_as_they_are():
    text = '<ir_version: 8, opset_import: ["" : 18]> g (float[1,7,9] x) => (float[1,7,9] y) { l = Log(x) y = Neg(l) }'
    model = canonicalize(ir.from_proto(onnx.parser.parse_model(text)))
    widen_logarithms(model)
    assert [node.op_type for node in model.graph] == ["Log", "Neg"]
