"""Products of matrices: zero points beside weights, and queries and keys without any."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from convertkit.onnx.unsigned import make_unsigned
from convertkit.targets.openvino.products import fold_zero_points, products_of_activations

RNG = np.random.default_rng(0)
X = RNG.standard_normal((5, 7)).astype(np.float32)
STORED = {
    "w": RNG.integers(-100, 100, (7, 3), np.int8),
    "t": np.array([0.01, 0.02, 0.03], np.float32),
    "u": np.array([3, -2, 1], np.int8),
    "b": np.array([0.1, -2, 3], np.float32),
    "matrix": RNG.standard_normal((5, 3)).astype(np.float32),
}
DENSE = "v = DequantizeLinear <axis = 1> (w, t)  m = MatMul (d, v)"


def model(body: str, zero: int = 131, other: int | None = None) -> ir.Model:
    """``d`` are the bytes of ``x``, with ``other`` as the zero point of what reads them."""
    text = f"""<ir_version: 10, opset_import: ["" : 21]> g (float[N,7] x, float[7,3] a) => (float[N,3] y, float[N,7] z)
    <float s = {{0.03}}, uint8 p = {{{zero}}}, uint8 o = {{{zero if other is None else other}}}> {{
        q = QuantizeLinear (x, s, p)  d = DequantizeLinear (q, s, o)  {body}  z = Sigmoid (d) }}"""
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in STORED.items())
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto))


def values(found: ir.Model) -> Mapping[str, np.ndarray]:
    proto = ir.to_proto(found)
    onnx.checker.check_model(proto, full_check=True)
    session = ReferenceEvaluator(proto)
    return dict(zip(session.output_names, session.run(None, {"x": X, "a": X[:3].T.copy()}), strict=True))


@pytest.mark.parametrize(
    ("body", "folded"),
    [
        (f"{DENSE}  y = Add (m, b)", 1),
        (f"{DENSE}  y = Add (b, m)", 1),
        (f"{DENSE}  n = Add (m, b)  k = MatMul (d, v)  l = Add (k, b)  y = Mul (n, l)", 2),
        ("v = DequantizeLinear <axis = 1> (w, t, u)  m = MatMul (d, v)  y = Add (m, b)", 1),
        ("v = DequantizeLinear (w, s)  m = MatMul (d, v)  y = Add (m, b)", 1),
        (f"{DENSE}  y = Relu (m)", 0),
        (f"{DENSE}  y = Add (m, m)", 0),
        (f"{DENSE}  n = Add (m, b)  y = Mul (n, m)", 0),
        (f"{DENSE}  y = Add (m, matrix)", 0),
        (f"{DENSE}  y = Add (m, s)", 0),
        ("m = MatMul (d, a)  y = Add (m, b)", 0),
    ],
    ids=[
        "a bias", "a bias first", "two readers", "weights with zero points", "one scale", "no bias", "added to itself",
        "two readers of the product", "a matrix in the bias' place", "a number in its place", "two activations",
    ],
)  # fmt: skip
def test_a_zero_point_moves_into_the_bias_of_the_product_alone(body: str, folded: int) -> None:
    """The Sigmoid reads the same bytes with their zero point."""
    found = model(body)
    wanted = values(found)
    assert fold_zero_points(found) == folded
    changed = values(found)
    np.testing.assert_allclose(changed["y"], wanted["y"], atol=2e-5)
    np.testing.assert_array_equal(changed["z"], wanted["z"])
    products = [node for node in found.graph if node.op_type == "MatMul"]
    assert [len(node.inputs[0].producer().inputs) for node in products] == [2 if folded else 3] * len(products)


@pytest.mark.parametrize(("zero", "other", "folded"), [(0, 0, 0), (131, 0, 0), (0, 131, 1), (120, 131, 1)])
def test_the_zero_point_with_which_bytes_are_read_is_the_one_that_counts(zero: int, other: int, folded: int) -> None:
    found = model(f"{DENSE}  y = Add (m, b)", zero, other)
    wanted = values(found)
    assert fold_zero_points(found) == folded
    np.testing.assert_allclose(values(found)["y"], wanted["y"], atol=2e-5)


HEADS = RNG.standard_normal((2, 5, 4)).astype(np.float32)
SCORES = "kt = Transpose <perm = [0, 2, 1]> (kd)  y = MatMul (qd, kt)"


def attention(body: str = SCORES, zero: int = 0, outputs: str = "float[2,5,5] y") -> ir.Model:
    """Queries and keys, int8 both, the keys with ``zero`` as their zero point."""
    text = f"""<ir_version: 10, opset_import: ["" : 21]> g (float[2,5,4] query, float[2,5,4] key) => ({outputs})
    <float s = {{0.03}}, int8 p = {{0}}, int8 o = {{{zero}}}, float[4,4] w = {{{", ".join(["0.5"] * 16)}}}> {{
        qi = QuantizeLinear (query, s, p)  qd = DequantizeLinear (qi, s, p)
        ki = QuantizeLinear (key, s, o)  kd = DequantizeLinear (ki, s, o)  {body} }}"""
    return ir.from_proto(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text)))


@pytest.mark.parametrize(
    ("found", "signed"),
    [
        (attention(), {"qi", "ki"}),
        (attention(zero=4), {"qi"}),
        (attention(f"{SCORES}  z = Relu (kd)", outputs="float[2,5,5] y, float[2,5,4] z"), {"qi"}),
        (attention(f"{SCORES}  z = MatMul (kd, w)", outputs="float[2,5,5] y, float[2,5,4] z"), {"qi"}),
        (attention(f"{SCORES}  z = Identity (qi)", outputs="float[2,5,5] y, int8[2,5,4] z"), {"ki"}),
        (attention(outputs="float[2,5,5] y, float[2,4,5] kt"), {"qi"}),
    ],
    ids=["both", "a zero point", "read by another", "multiplied by weights", "integers read", "an output"],
)
def test_queries_and_keys_keep_their_sign_where_nothing_else_reads_them(found: ir.Model, signed: set[str]) -> None:
    feeds = {"query": HEADS, "key": HEADS[::-1].copy()}
    wanted = ReferenceEvaluator(ir.to_proto(found)).run(None, feeds)
    kept = products_of_activations(found)
    assert {node.outputs[0].name for node in kept} == signed
    make_unsigned(found, kept)
    kinds = {node.outputs[0].name: node.outputs[0].dtype for node in found.graph if node.op_type == "QuantizeLinear"}
    assert {name for name, kind in kinds.items() if kind == ir.DataType.INT8} >= signed
    for one, other in zip(ReferenceEvaluator(ir.to_proto(found)).run(None, feeds), wanted, strict=True):
        np.testing.assert_array_equal(one, other)
