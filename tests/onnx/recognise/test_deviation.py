"""Deviations of equal elements are exactly 0 where nothing usual is added to what is made of them."""

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from convertkit.onnx.canonical import canonicalize

MEANS = "m = ReduceMean(x, axes) d = Sub(x, m) n = ReduceMean(x, axes) c = Sub(x, n) "
STD = MEANS + "q = Mul(c, c) v = ReduceMean(q, axes) r = Sqrt(v) "
BODIES = {
    "std and an epsilon": STD + "t = Add(r, tiny) y = Div(d, t)",
    "corrected std": MEANS
    + "q = Pow(c, two) w = ReduceMean(q, axes) v = Mul(w, two) r = Sqrt(v) t = Max(r, tiny) y = Div(d, t)",
    "one mean": "m = ReduceMean(x, axes) d = Sub(x, m) q = Mul(d, d) v = ReduceSum(q, axes) r = Sqrt(v) "
    "t = Add(r, tiny) y = Div(d, t)",
    "squares at once": MEANS + "v = ReduceSumSquare(c, axes) r = Sqrt(v) t = Add(r, tiny) y = Div(d, t)",
    "length": MEANS + "v = ReduceL2(c, axes) t = Max(v, tiny) y = Div(d, t)",
    "small epsilon inside": MEANS + "q = Mul(c, c) v = ReduceMean(q, axes) t = Add(v, less) r = Sqrt(t) y = Div(d, r)",
    "logarithm of the variance": MEANS
    + "q = Mul(c, c) v = ReduceMean(q, axes) t = Add(v, less) r = Log(t) y = Mul(d, r)",
    "difference of means": "m = ReduceMean(x, axes) d = Sub(x, m) s = Mul(x, x) a = ReduceMean(s, axes) b = Mul(m, m) "
    "v = Sub(a, b) r = Sqrt(v) t = Add(r, tiny) y = Div(d, t)",
    "axes put back": "m = ReduceMean<keepdims=0>(x, axes) k = Unsqueeze(m, axes) d = Sub(x, k) q = Mul(d, d) "
    "v = ReduceMean(q, axes) r = Sqrt(v) t = Add(r, tiny) y = Div(d, t)",
}  # fmt: skip
USUAL = {
    "usual epsilon": MEANS + "q = Mul(c, c) v = ReduceMean(q, axes) t = Add(v, usual) r = Sqrt(t) y = Div(d, r)",
    "usual limit": MEANS + "q = Mul(c, c) w = ReduceMean(q, axes) v = Mul(w, two) t = Max(v, usual) y = Div(d, t)",
}
CONSTANTS = "float tiny = {1e-8}, float less = {1e-14}, float usual = {1e-5}, float two = {2.0}"


def model(body: str, axes: str) -> onnx.ModelProto:
    head = '<ir_version: 8, opset_import: ["" : 18]> g (float[N,7,9] x) => (float[N,7,9] y) '
    return onnx.parser.parse_model(f"{head}<{CONSTANTS}, int64[{axes.count(',') + 1}] axes = {{{axes}}}> {{{body}}}")


def run(proto: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    return ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


def canonical(proto: onnx.ModelProto) -> onnx.ModelProto:
    return ir.to_proto(canonicalize(ir.from_proto(proto)))


@pytest.mark.parametrize("axes", ["1", "1, 2"])
@pytest.mark.parametrize("name", BODIES)
def test_equal_elements_have_no_deviation(name, axes):
    rows = np.log(np.random.default_rng(1).uniform(1e-10, 1e-3, (40, 1, 1))).astype(np.float32)
    x = np.broadcast_to(rows, (40, 7, 9)).copy()
    proto = model(BODIES[name], axes)
    assert not run(canonical(proto), x).any()
    written = np.abs(run(proto, x)).max()  # NaN where the variance is negative
    assert name == "logarithm of the variance" or np.isnan(written) or written > 0.05


@pytest.mark.parametrize("name", BODIES)
def test_other_elements_keep_their_digits(name):
    rng = np.random.default_rng(2)
    proto = model(BODIES[name], "1")
    for drawn in (rng.standard_normal((5, 7, 9)), 100 + rng.standard_normal((5, 7, 9)), np.eye(7, 9)[None] * 1e4):
        x = drawn.astype(np.float32)
        wide = x.astype(np.float64)
        apart = wide - wide.mean(1, keepdims=True)
        squares = (apart**2).sum(1, keepdims=True)
        mean = squares / 7
        squares, mean = np.where(squares > 0, squares, 1.0), np.where(squares > 0, mean, 1.0)
        expected = {
            "corrected std": apart / np.sqrt(2 * mean),
            "one mean": apart / np.sqrt(squares),
            "squares at once": apart / np.sqrt(squares),
            "length": apart / np.sqrt(squares),
            "logarithm of the variance": apart * np.log(mean + 1e-14),
        }.get(name, apart / np.sqrt(mean))
        spread = np.ptp(x, 1, keepdims=True) > 0
        spread = np.broadcast_to(spread, expected.shape)
        got = run(canonical(proto), x)
        np.testing.assert_allclose(got[spread], expected[spread], rtol=0, atol=3e-5 * np.abs(expected[spread]).max())


@pytest.mark.parametrize("name", USUAL)
def test_a_usual_epsilon_does_not_hide_the_mean_of_large_elements(name):
    made = canonical(model(USUAL[name], "1"))
    for number in np.random.default_rng(1).uniform(-3000, 3000, 20).astype(np.float32):
        assert not run(made, np.full((2, 7, 9), number)).any()


@pytest.mark.parametrize("name", USUAL)
def test_a_usual_epsilon_leaves_what_varies_as_it_is(name):
    body = "x = Add(z, rows) " + USUAL[name]
    proto = model(body, "1")
    proto.graph.input[0].name = "z"
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.arange(7, dtype=np.float32)[:, None], "rows"))
    assert "Slice" not in [node.op_type for node in canonical(proto).graph.node]


@pytest.mark.parametrize("name", BODIES)
def test_deviations_are_shifted_once(name):
    once = canonical(model(BODIES[name], "1"))
    for made in (once, canonical(once)):
        assert [node.op_type for node in made.graph.node].count("Slice") == 1


@pytest.mark.parametrize("mean", ["ReduceMean<keepdims = 0>(x)", "ReduceMean(x)", "ReduceMean<keepdims = 0>(x, whole)"])
def test_all_elements_together_have_none_either(mean):
    """``(x - x.mean()) / (x.std() + 1e-8)`` of a picture: its mean has no axes, and is a scalar."""
    body = f"m = {mean} d = Sub(x, m) n = ReduceMean(x, whole) c = Sub(x, n) q = Mul(c, c) "
    body += "v = ReduceMean<keepdims = 0>(q, whole) r = Sqrt(v) t = Add(r, tiny) y = Div(d, t)"
    head = '<ir_version: 8, opset_import: ["" : 18]> g (float[1,7,9] x) => (float[1,7,9] y) '
    proto = onnx.parser.parse_model(f"{head}<{CONSTANTS}, int64[3] whole = {{0, 1, 2}}> {{{body}}}")
    made = canonical(proto)
    assert [node.op_type for node in made.graph.node].count("Slice") == 1
    numbers = np.random.default_rng(1).uniform(-5, 5, 40).astype(np.float32)
    assert any(run(proto, np.full((1, 7, 9), number)).any() for number in numbers)
    assert not any(run(made, np.full((1, 7, 9), number)).any() for number in numbers)
