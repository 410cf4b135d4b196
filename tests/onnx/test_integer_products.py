"""Gemm of integers, which ONNX Runtime has no kernel of, as MatMul and Add."""

from __future__ import annotations

import numpy as np
import onnx.parser
import onnx_ir as ir
import onnxruntime as ort
import pytest

from convertkit.onnx.canonical import canonicalize

_HEAD = '<ir_version: 8, opset_import: ["" : 18]>'


@pytest.mark.parametrize("kind", ["int32", "int64"])
@pytest.mark.parametrize(
    ("attributes", "inner"), [("", ""), ("<alpha = 2.0, beta = -3.0>", ""), ("<transA = 1, transB = 1>", "t")]
)
def test_the_same_integers(kind: str, attributes: str, inner: str) -> None:
    shape = {"": ("[2,3]", "[3,4]"), "t": ("[3,2]", "[4,3]")}[inner]
    body = (
        f"({kind}{shape[0]} x, {kind}{shape[1]} y, {kind}[4] c) => ({kind}[2,4] z) {{z = Gemm {attributes} (x, y, c)}}"
    )
    proto = onnx.parser.parse_model(f"{_HEAD} g {body}")
    model = canonicalize(ir.from_proto(proto))
    assert "Gemm" not in {node.op_type for node in model.graph}
    drawn = np.random.default_rng(0)
    feed = {value.name: drawn.integers(-9, 9, tuple(value.shape)).astype(kind) for value in model.graph.inputs}
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString())
    x, y = (feed[name].T if inner else feed[name] for name in "xy")
    alpha, beta = (2, -3) if "alpha" in attributes else (1, 1)
    np.testing.assert_array_equal(session.run(["z"], feed)[0], alpha * (x @ y) + beta * feed["c"])


@pytest.mark.parametrize(("kind", "attributes"), [("float", ""), ("int64", "<alpha = 0.5>")])
def test_floats_and_fractions_stay(kind: str, attributes: str) -> None:
    body = f"({kind}[2,3] x, {kind}[3,4] y) => ({kind}[2,4] z) {{z = Gemm {attributes} (x, y)}}"
    model = canonicalize(ir.from_proto(onnx.parser.parse_model(f"{_HEAD} g {body}")))
    assert "Gemm" in {node.op_type for node in model.graph}
