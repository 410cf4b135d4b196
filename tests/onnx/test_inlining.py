"""Functions of another opset than the model's."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from convertkit.errors import Unsupported
from convertkit.onnx.canonical import canonicalize

MODEL = """<ir_version: 8, opset_import: ["" : 18, "own" : 1]>
g (float[n,3] x) => (float[n,3] y) {
    y = own.twice (x)
}
<domain: "own", opset_import: ["" : 16]>
twice (a) => (b) {
    c = Constant <value_ints = [1]> ()
    s = OPERATOR
    b = Add (a, s)
}"""


def test_operators_that_mean_the_same_are_taken_over() -> None:
    proto = onnx.parser.parse_model(MODEL.replace("OPERATOR", "ReduceSum <keepdims = 1> (a, c)"))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    made = ir.to_proto(canonicalize(ir.from_proto(proto)))
    assert not made.functions
    session = ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], x + x.sum(1, keepdims=True))


def test_an_operator_that_has_changed_is_named() -> None:
    proto = onnx.parser.parse_model(MODEL.replace("OPERATOR", "ReduceMax <axes = [1]> (a)"))
    with pytest.raises(
        Unsupported, match=r"function own.twice: its ReduceMax is of opset 16, and the model's opset 18"
    ):
        canonicalize(ir.from_proto(proto))


@pytest.mark.parametrize("opset", [13, 17, 21, 27])
def test_functions_of_older_and_newer_models_are_there(opset: int) -> None:
    """ONNX's version converter drops functions, and their calls were left."""
    text = MODEL.replace('"" : 18', f'"" : {opset}').replace('"" : 16', f'"" : {opset}')
    proto = onnx.parser.parse_model(text.replace("OPERATOR", "ReduceSum <keepdims = 1> (a, c)"))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    made = ir.to_proto(canonicalize(ir.from_proto(proto)))
    assert {node.domain for node in made.graph.node} == {""}
    session = ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], x + x.sum(1, keepdims=True))
