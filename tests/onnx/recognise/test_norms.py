"""Layer normalisation in the spellings of Keras, Flax and tf2onnx, and variances that lose no digits."""

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from convertkit.onnx.canonical import canonicalize

EPSILON = np.float32(1e-6)
FLOATS = {"e": EPSILON, "two": np.float32(2), "zero": np.float32(0)}
SCALE, BIAS = np.linspace(0.5, 2, 8, dtype=np.float32), np.linspace(-1, 1, 8, dtype=np.float32)
MEAN = "m = ReduceMean<keepdims=1>(x, last) "
CENTRED = "d = Sub(x, m) q = Mul(d, d) v = ReduceMean<keepdims=1>(q, last) "
POWER = "d = Sub(x, m) q = Pow(d, two) v = ReduceMean<keepdims=1>(q, last) "
TEXTBOOK = "s = Mul(x, x) a = ReduceMean<keepdims=1>(s, last) b = Mul(m, m) v = Sub(a, b) d = Sub(x, m) "
FLOORED = TEXTBOOK.replace("v = Sub(a, b)", "w = Sub(a, b) v = Max(w, zero)")
ROOT = "t = Add(v, e) r = Sqrt(t) "
WHOLE = {
    "flax": MEAN + TEXTBOOK + ROOT + "i = Reciprocal(r) j = Mul(i, g) n = Mul(d, j) y = Add(n, o)",
    "flax with a floor": MEAN + FLOORED + ROOT + "i = Reciprocal(r) j = Mul(i, g) n = Mul(d, j) y = Add(n, o)",
    "torch": MEAN + POWER + ROOT + "i = Div(d, r) n = Mul(i, g) y = Add(n, o)",
    "tf2onnx": MEAN + CENTRED + ROOT
    + "i = Reciprocal(r) j = Mul(i, g) k = Mul(x, j) l = Mul(m, j) n = Sub(o, l) y = Add(k, n)",
    "tf2onnx, textbook": MEAN + TEXTBOOK + ROOT
    + "i = Reciprocal(r) j = Mul(g, i) k = Mul(j, x) l = Mul(j, m) n = Sub(o, l) y = Add(n, k)",
}  # fmt: skip


def model(body: str, last: str = "{-1}") -> onnx.ModelProto:
    numbers = [f"float {name} = {{{float(value)!r}}}" for name, value in FLOATS.items()]
    rows = [f"float[8] {name} = {{{', '.join(map(str, value))}}}" for name, value in (("g", SCALE), ("o", BIAS))]
    head = '<ir_version: 8, opset_import: ["" : 18]> g (float[N,5,8] x) => (float[N,5,8] y) '
    return onnx.parser.parse_model(f"{head}<{', '.join([*numbers, *rows])}, int64[1] last = {last}> {{{body}}}")


def results(proto: onnx.ModelProto, x: np.ndarray) -> tuple[ir.Model, np.ndarray, np.ndarray]:
    """The canonical model, and what the model gives before and after."""
    made = canonicalize(ir.from_proto(proto))
    before, after = (
        ort.InferenceSession(each.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
        for each in (proto, ir.to_proto(made))
    )
    return made, before, after


def normalised(x: np.ndarray, axis: int) -> np.ndarray:
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axis, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis, keepdims=True) + np.float64(EPSILON)) * SCALE + BIAS


@pytest.mark.parametrize("offset", [0, 30])
@pytest.mark.parametrize("name", WHOLE)
def test_layer_normalisation_is_nearer_to_the_truth_than_what_was_written(name, offset):
    x = (np.random.default_rng(0).standard_normal((3, 5, 8)) + offset).astype(np.float32)
    made, before, after = results(model(WHOLE[name]), x)
    assert [node.op_type for node in made.graph] == ["Slice", "Sub", "LayerNormalization"]
    errors = [np.abs(each - normalised(x, -1)).max() for each in (before, after)]
    assert errors[1] <= 2 * errors[0] + 1e-6
    assert errors[1] < 1e-5


@pytest.mark.parametrize("value", [0.0, 1.0, 1e-6, 1e-3])
@pytest.mark.parametrize("name", WHOLE)
def test_constant_rows(name, value):
    x = np.full((1, 5, 8), value, np.float32)
    x[0, 1] = 0
    _, before, after = results(model(WHOLE[name]), x)
    np.testing.assert_allclose(after, before, atol=1e-3)
    np.testing.assert_allclose(after, normalised(x, -1), atol=1e-3)


@pytest.mark.parametrize("keepdims", [0, 1])
def test_a_variance_over_other_axes_keeps_its_digits(keepdims):
    """As group and batch normalisation have it."""
    kept = f"<keepdims={keepdims}>"
    body = f"s = Mul(x, x) a = ReduceMean{kept}(s, last) m = ReduceMean{kept}(x, last) b = Mul(m, m) w = Sub(a, b)"
    body += " y = Add(x, w)" if keepdims else " u = Unsqueeze(w, last) y = Add(x, u)"
    x = (np.random.default_rng(0).standard_normal((3, 5, 8)) + 100).astype(np.float32)
    made, before, after = results(model(body, "{1}"), x)
    assert "Mul" in [node.op_type for node in made.graph]
    truth = x + x.astype(np.float64).var(1, keepdims=True)
    assert np.abs(before - truth).max() > 1e-4
    assert np.abs(after - truth).max() < 2e-5


@pytest.mark.parametrize(
    "body",
    [
        WHOLE["torch"].replace("i = Div(d, r)", "i = Div(x, r)"),
        WHOLE["tf2onnx"].replace("l = Mul(m, j)", "l = Mul(m, i)"),
        WHOLE["tf2onnx"].replace("n = Sub(o, l)", "n = Sub(l, o)"),
        WHOLE["flax"].replace("b = Mul(m, m)", "b = Mul(m, two)"),
        WHOLE["torch"].replace("t = Add(v, e)", "z = Mul(v, two) t = Add(z, e)"),
        WHOLE["flax"].replace("a = ReduceMean<keepdims=1>(s, last)", "a = ReduceMax<keepdims=1>(s, last)"),
    ],
    ids=["not centred", "other factors", "sign", "no square", "another variance", "no mean"],
)
def test_what_is_another_function_stays(body):
    x = np.random.default_rng(0).standard_normal((3, 5, 8)).astype(np.float32)
    made, before, after = results(model(body), x)
    assert "LayerNormalization" not in [node.op_type for node in made.graph]
    np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-4)
