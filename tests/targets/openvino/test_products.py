"""Products of matrices: queries and keys without zero points."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from convertkit.onnx.unsigned import make_unsigned
from convertkit.targets.openvino.products import products_of_activations

RNG = np.random.default_rng(0)
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
