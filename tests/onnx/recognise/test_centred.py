"""Norms that are written as a factor and an offset take the mean off the values themselves."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from convertkit.onnx.canonical import canonicalize

VARIANCE = """m = ReduceMean(x, axes) d = Sub(x, m) q = Mul(d, d) v = ReduceMean(q, axes) e = Add(v, small) s = Sqrt(e)
    r = Reciprocal(s) f = Mul(r, scale)"""
OFFSETS = {
    "negative mean": "n = Neg(m) t = Mul(n, f) o = Add(t, bias)",
    "minus one": "n = Mul(m, minus) t = Mul(f, n) o = Sum(bias, t)",
    "negative product": "t = Mul(m, f) n = Neg(t) o = Add(bias, n)",
    "difference": "t = Mul(m, f) o = Sub(bias, t)",
    "no bias": "n = Neg(m) o = Mul(n, f)",
}
PRODUCTS = {"factor behind": "p = Mul(x, f) y = Add(p, o)", "factor in front": "p = Mul(f, x) y = Sum(o, p)"}


def model(offset: str, variance: str = VARIANCE, product: str = PRODUCTS["factor behind"]) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 18]>
        g (float[n,6,7,2,2] x) => (float[n,6,7,2,2] y)
        <int64[3] axes = {{1, 2, 4}}, float small = {{0.00001}}, float minus = {{-1.0}},
         float[2,1] scale = {{0.7, 1.3}}, float[2,1] bias = {{0.25, -0.5}}>
        {{ {variance} {offset} {product} }}""")


def readers_of_x(proto: onnx.ModelProto) -> list[str]:
    return sorted(node.op_type for node in proto.graph.node if "x" in node.input)


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("offset", OFFSETS)
def test_equal_elements_are_the_bias_exactly(offset: str, product: str) -> None:
    proto = model(OFFSETS[offset], product=PRODUCTS[product])
    made = ir.to_proto(canonicalize(ir.from_proto(proto)))
    assert "Mul" not in readers_of_x(made), "the values themselves are not scaled"
    x = np.random.default_rng(3).normal(2, 1.5, (2, 6, 7, 2, 2)).astype(np.float32)
    wanted, found = (ReferenceEvaluator(each).run(None, {"x": x})[0] for each in (proto, made))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=2e-6)
    (equal,) = ReferenceEvaluator(made).run(None, {"x": np.full_like(x, 0.5537)})
    bias = np.float32([0.0, 0.0] if offset == "no bias" else [0.25, -0.5])
    np.testing.assert_array_equal(equal, np.broadcast_to(bias[:, None], x.shape))


@pytest.mark.parametrize(
    ("offset", "variance"),
    [
        ("difference", "m = ReduceMean(x, axes) a = Abs(x) v = ReduceMax(a, axes) r = Reciprocal(v) f = Mul(r, scale)"),
        ("negative mean", VARIANCE.replace("m = ReduceMean(x, axes)", "m = ReduceMax(x, axes)")),
        ("negative mean", VARIANCE.replace("d = Sub(x, m)", "d = Sub(m, x)")),
        ("negative mean", VARIANCE.replace("d = Sub(x, m)", "o2 = Mul(m, scale) d = Sub(x, o2)")),
        ("negative mean", VARIANCE.replace("m = ReduceMean(x, axes)", "z = Abs(x) m = ReduceMean(z, axes)")),
    ],
    ids=[
        "no deviation is there",
        "not a mean",
        "the other way around",
        "a deviation from another",
        "the mean of another",
    ],
)
def test_what_has_no_deviation_from_its_mean_stays(offset: str, variance: str) -> None:
    made = ir.to_proto(canonicalize(ir.from_proto(model(OFFSETS[offset], variance))))
    assert "Mul" in readers_of_x(made)
