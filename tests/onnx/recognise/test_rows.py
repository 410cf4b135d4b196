"""A Softmax that ONNX's version converter wrote out over rows is one along the last axis again; others stay."""

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from convertkit.onnx.canonical import canonicalize

PLAIN = "y = {}<axis = {}>(t)"
WRITTEN = "s = Shape(t) f = Flatten<axis = {}>(t) r = Softmax<axis = -1>(f) y = Reshape(r, s)"


def model(body: str, opset: int, sizes: str = "N,4,W,W") -> onnx.ModelProto:
    """``t`` has a rank that ONNX's version converter does not know: a Reshape by computed sizes makes it."""
    head = f'<ir_version: 7, opset_import: ["" : {opset}]> g (float[{sizes}] x) => (float[a,b,c,d] y)'
    return onnx.parser.parse_model(f"{head} {{ z = Shape(x) m = Neg(x) t = Reshape(m, z) {body} }}")


def canonical(proto: onnx.ModelProto) -> onnx.ModelProto:
    return ir.to_proto(canonicalize(ir.from_proto(proto)))


def operators(proto: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in proto.graph.node]


def run(proto: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    return ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


@pytest.mark.parametrize("sizes", ["N,4,W,W", "N,4,3,W", "2,4,3,5"])
@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("axis", [3, -1])
def test_the_last_axis_needs_no_rows(operator: str, axis: int, sizes: str) -> None:
    proto = model(PLAIN.format(operator, axis), 11, sizes)
    made = canonical(proto)
    assert operator in operators(made)
    assert "Flatten" not in operators(made)
    assert operators(made).count("Reshape") == 0
    x = np.random.default_rng(0).standard_normal((2, 4, 3, 5) if "3" in sizes else (2, 4, 5, 5)).astype(np.float32)
    np.testing.assert_allclose(run(made, x), run(proto, x), rtol=1e-6)


@pytest.mark.parametrize("axis", [0, 1, 2, 4])
def test_rows_of_more_axes_stay(axis: int) -> None:
    proto = model(WRITTEN.format(axis), 18)
    made = canonical(proto)
    assert operators(made).count("Softmax") == 1
    assert len(made.graph.node) > 2
    x = np.random.default_rng(0).standard_normal((2, 4, 5, 5)).astype(np.float32)
    np.testing.assert_allclose(run(made, x), run(proto, x), rtol=1e-6)
