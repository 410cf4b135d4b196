"""GELU in the spellings of PyTorch, tf2onnx, JAX and others is one operator; what is another function stays."""

import math

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from scipy import special

from convertkit.onnx.canonical import canonicalize

KNOWN = {
    "one": 1.0, "half": 0.5, "two": 2.0, "three": 3.0, "root": math.sqrt(2), "inverse": math.sqrt(0.5),
    "k": 0.044715, "slope": math.sqrt(2 / math.pi), "slope_k": math.sqrt(2 / math.pi) * 0.044715,
}  # fmt: skip
ERF = {
    "torch": "a = Div(x, root) b = Erf(a) c = Add(b, one) d = Mul(x, c) y = Mul(d, half)",
    "tf2onnx": "a = Div(x, root) b = Erf(a) c = Add(one, b) d = Mul(half, c) y = Mul(x, d)",
    "jax": "h = Mul(half, x) a = Mul(x, inverse) b = Erf(a) c = Add(b, one) y = Mul(h, c)",
    "summed": "a = Mul(inverse, x) b = Erf(a) c = Mul(b, half) d = Add(c, half) y = Mul(d, x)",
    "distributed": "h = Div(x, two) a = Div(x, root) b = Erf(a) c = Mul(h, b) y = Add(c, h)",
    "minus": "n = Neg(half) a = Div(x, root) b = Erf(a) c = Mul(b, n) d = Sub(half, c) y = Mul(x, d)",
}
TANH = {
    "torch": "p = Pow(x, three) a = Mul(p, k) b = Add(x, a) c = Mul(b, slope) d = Tanh(c) e = Add(d, one)"
    " f = Mul(x, half) y = Mul(f, e)",
    "tf2onnx": "p = Pow(x, three) a = Mul(k, p) b = Add(x, a) c = Mul(slope, b) d = Tanh(c) e = Add(one, d)"
    " f = Mul(half, e) y = Mul(x, f)",
    "jax": "q = Mul(x, x) p = Mul(q, x) a = Mul(k, p) b = Add(x, a) c = Mul(slope, b) d = Tanh(c) e = Add(d, one)"
    " f = Mul(half, e) y = Mul(x, f)",
    "factored": "q = Mul(x, x) a = Mul(k, q) b = Add(a, one) s = Mul(slope, x) c = Mul(s, b) d = Tanh(c)"
    " e = Add(d, one) f = Mul(x, half) y = Mul(e, f)",
    "merged": "q = Pow(x, two) r = Mul(q, slope_k) b = Add(r, slope) c = Mul(b, x) d = Tanh(c)"
    " e = Mul(half, d) f = Add(half, e) y = Mul(x, f)",
}
FORMS = [("none", name, body) for name, body in ERF.items()] + [("tanh", name, body) for name, body in TANH.items()]
SPECIAL = [0.0, -0.0, 1e-30, -1e-30, 1e-5, -1e-3, 0.5, -0.75, 3.0, -3.0, -5.5, 9.0, -30.0, 1e5, -1e5]


def model(body: str, known: dict[str, float], opset: int = 18) -> onnx.ModelProto:
    """x is itself computed, so that a wrong x can be found."""
    constants = ", ".join(f"float {name} = {{{np.float32(value)!r}}}" for name, value in known.items())
    constants = constants.replace("np.float32(", "").replace(")", "")
    text = f'<ir_version: 8, opset_import: ["" : {opset}]> g (float[N,8] z) => (float[N,8] y) <{constants}> '
    return onnx.parser.parse_model(text + "{x = Mul(z, two) " + body + "}")


def made_of(proto: onnx.ModelProto) -> ir.Model:
    return canonicalize(ir.from_proto(proto))


def operators(made: ir.Model) -> list[str]:
    return [node.op_type for node in made.graph]


@pytest.mark.parametrize(
    ("approximate", "body"), [(form, body) for form, _, body in FORMS], ids=[f"{f}-{n}" for f, n, _ in FORMS]
)
def test_every_association(approximate, body):
    proto = model(body, KNOWN)
    made = made_of(proto)
    assert operators(made) == ["Mul", "Gelu"]
    assert made.graph[1].attributes.get_string("approximate", "none") == approximate
    z = np.array([SPECIAL, np.random.default_rng(0).standard_normal(len(SPECIAL)) * 3], np.float32).reshape(-1)
    z = np.resize(z, (4, 8))
    x = 2 * z.astype(np.float64)
    if approximate == "none":
        truth = x * special.ndtr(x)
    else:
        truth = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    before, after = (
        ort.InferenceSession(each.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"z": z})[0]
        for each in (proto, ir.to_proto(made))
    )
    assert np.abs(after - truth).max() <= 2 * np.abs(before - truth).max() + 1e-7
    assert (np.isfinite(after) == np.isfinite(before)).all()


@pytest.mark.parametrize("name", ["root", "slope", "k"])
@pytest.mark.parametrize("direction", [-9, 9])
def test_a_constant_rounded_either_way(name, direction):
    body = ERF["torch"] if name == "root" else TANH["torch"]
    neighbour = float(np.nextafter(np.float32(KNOWN[name]), np.float32(direction)))
    assert operators(made_of(model(body, {**KNOWN, name: neighbour}))) == ["Mul", "Gelu"]


OFF = [(name, form, factor) for name, form in [("root", "none"), ("one", "none"), ("half", "none"), ("one", "tanh"),
       ("half", "tanh"), ("slope", "tanh"), ("k", "tanh")] for factor in (1 + 5e-7, 1 - 5e-7, 1 + 1e-5)]  # fmt: skip


@pytest.mark.parametrize(("name", "form", "factor"), OFF)
def test_another_number_is_another_function(name, form, factor):
    body = (ERF if form == "none" else TANH)["torch"]
    assert "Gelu" not in operators(made_of(model(body, {**KNOWN, name: KNOWN[name] * factor})))


@pytest.mark.parametrize(
    "body",
    [
        "a = Div(z, root) b = Erf(a) c = Add(b, one) d = Mul(x, c) y = Mul(d, half)",
        "a = Div(x, root) b = Tanh(a) c = Add(b, one) d = Mul(x, c) y = Mul(d, half)",
        "a = Div(x, root) b = Erf(a) c = Sub(b, one) d = Mul(x, c) y = Mul(d, half)",
        "a = Div(x, root) b = Erf(a) c = Add(b, one) d = Mul(x, c) e = Mul(d, half) y = Mul(e, b)",
        "q = Mul(x, x) p = Mul(q, q) a = Mul(k, p) b = Add(x, a) c = Mul(slope, b) d = Tanh(c) e = Add(d, one)"
        " f = Mul(half, e) y = Mul(x, f)",
    ],
    ids=["another x", "another curve", "sign", "the curve is read elsewhere", "fourth power"],
)
def test_what_is_not_gelu_stays(body):
    assert "Gelu" not in operators(made_of(model(body, KNOWN)))


def test_an_opset_that_writes_others_differently_stays():
    body = ERF["torch"].replace("y = Mul", "v = Mul")
    shapes = "s = Unsqueeze(v, last) t = DFT(s) u = ReduceSum(t, last) y = Identity(u)"
    constants = "int64[1] last = {-1}"
    known = ", ".join(f"float {name} = {{{float(np.float32(value))!r}}}" for name, value in KNOWN.items())
    text = f'<ir_version: 8, opset_import: ["" : 18]> g (float[N,8] z) => (float[N,8] y) <{known}, {constants}> '
    made = made_of(onnx.parser.parse_model(text + "{x = Mul(z, two) " + body + shapes + "}"))
    assert "Gelu" not in operators(made)
    assert made.graph.opset_imports[""] == 18
