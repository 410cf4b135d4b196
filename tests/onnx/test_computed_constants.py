"""Weights that the graph computes from constants are constants in canonical ONNX, whatever their size."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import numpy_helper, parser
from onnx.reference import ReferenceEvaluator

import convertkit
from convertkit.onnx.canonical import canonicalize

WEIGHT = (48, 24, 3, 3)
MEAN = "m = ReduceMean(w, axes) c = Sub(w, m) s = Mul(c, c) v = ReduceMean(s, axes)"
COMPUTED = {
    "standardised": f"{MEAN} e = Add(v, eps) d = Sqrt(e) k = Div(c, d)",
    "standardised by a batch norm": """r = Reshape(w, flat)
        b, bm, bv = BatchNormalization<training_mode=1, momentum=0.0>(r, gain, zeros, zeros, ones)
        k = Reshape(b, like)""",
    "normed": "n = ReduceL2(w, axes) u = Div(w, n) k = Mul(u, g)",
    "spectral": "f = Reshape(w, matrix) t = MatMul(f, right) n = ReduceL2(t) k = Div(w, n)",
    "masked": "f = Cast<to=1>(mask) k = Mul(w, f)",
    "averaged": "a = Mul(w, eps) b = Mul(w2, eps) k = Add(a, b)",
    "in halves": "h = Cast<to=10>(w) h2 = Mul(h, h) k = Cast<to=1>(h2)",
}
KEPT = {
    "moved halves": "k = Cast<to=1>(half)",
    "integers with a scale": "f = Cast<to=1>(bytes) k = Mul(f, eps)",
}
RNG = np.random.default_rng(5)
CONSTANTS = {
    "w": RNG.standard_normal(WEIGHT).astype(np.float32),
    "w2": RNG.standard_normal(WEIGHT).astype(np.float32),
    "half": RNG.standard_normal(WEIGHT).astype(np.float16),
    "bytes": RNG.integers(-127, 128, WEIGHT).astype(np.int8),
    "mask": RNG.random(WEIGHT) > 0.5,
    "g": RNG.random((48, 1, 1, 1)).astype(np.float32),
    "gain": RNG.random(48).astype(np.float32),
    "zeros": np.zeros(48, np.float32),
    "ones": np.ones(48, np.float32),
    "eps": np.array(0.5, np.float32),
    "right": RNG.standard_normal((216, 1)).astype(np.float32),
    "steps": RNG.uniform(0.01, 0.03, 48).astype(np.float32),
    "points": np.zeros(48, np.int8),
    "axes": np.array([1, 2, 3]),
    "flat": np.array([1, 48, 216]),
    "matrix": np.array([48, 216]),
    "like": np.array(WEIGHT),
}


def model(nodes: str, conv: str = "y = Conv(x, k)") -> onnx.ModelProto:
    made = parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 18]>
        g (float[n,24,9,9] x) => (float[n,48,7,7] y) {{ {nodes} {conv} }}""")
    made.graph.initializer.extend(
        numpy_helper.from_array(value, name)
        for name, value in CONSTANTS.items()
        if any(name in n.input for n in made.graph.node)
    )
    return made


def canonical(proto: onnx.ModelProto) -> onnx.ModelProto:
    return ir.to_proto(canonicalize(ir.from_proto(proto)))


def answer(proto: onnx.ModelProto, feed: dict[str, np.ndarray]) -> np.ndarray:
    """As ONNX says it: ONNX Runtime takes pairs of casts for nothing, halves in between or not."""
    return ReferenceEvaluator(proto).run(None, feed)[0]


@pytest.mark.parametrize("nodes", COMPUTED.values(), ids=COMPUTED)
def test_a_computed_weight_is_one(nodes: str) -> None:
    before = model(nodes)
    after = canonical(before)
    assert [node.op_type for node in after.graph.node] == ["Conv"] or nodes == COMPUTED["in halves"]
    assert "Mul" not in [node.op_type for node in after.graph.node]
    feed = {"x": RNG.standard_normal((2, 24, 9, 9)).astype(np.float32)}
    np.testing.assert_allclose(answer(after, feed), answer(before, feed), rtol=1e-5, atol=1e-5)
    assert after.ByteSize() < before.ByteSize() + 2000


@pytest.mark.parametrize("nodes", KEPT.values(), ids=KEPT)
def test_what_would_blow_up_the_file_stays_computed(nodes: str) -> None:
    before = model(nodes)
    after = canonical(before)
    assert len(after.graph.node) > 1
    assert after.ByteSize() < before.ByteSize() + 2000


def test_a_weight_that_the_graph_quantizes_is_stored_in_integers() -> None:
    """As training that knows of integers leaves it: a float weight between QuantizeLinear and its way back."""
    before = model("q = QuantizeLinear<axis=0>(w, steps, points) k = DequantizeLinear<axis=0>(q, steps, points)")
    after = canonical(before)
    assert [node.op_type for node in after.graph.node] == ["DequantizeLinear", "Conv"]
    kinds = {len(each.dims): each.data_type for each in after.graph.initializer}
    assert kinds[len(WEIGHT)] == onnx.TensorProto.INT8
    feed = {"x": RNG.standard_normal((2, 24, 9, 9)).astype(np.float32)}
    session, other = (ort.InferenceSession(each.SerializeToString()) for each in (before, after))
    np.testing.assert_allclose(other.run(None, feed)[0], session.run(None, feed)[0], rtol=1e-5, atol=1e-5)


def test_a_large_table_of_one_number_stays_computed() -> None:
    proto = parser.parse_model("""<ir_version: 8, opset_import: ["" : 18]> 
        g (float[1024,1024] x) => (float[1024,1024] y)
        <float a = {0.5}, int64[2] size = {1024, 1024}> { u = Expand(a, size) t = Sqrt(u) y = Add(x, t) }""")
    assert canonical(proto).ByteSize() < 5000


def test_what_is_computed_behind_a_large_table_is_folded() -> None:
    proto = parser.parse_model("""<ir_version: 8, opset_import: ["" : 18]>
        g (float[1024,1024] x) => (float[1024,1024] y)
        <float a = {0.5}, int64[2] size = {1024, 1024}> {
        u = Expand(a, size) t = Sqrt(u) s = ReduceMax(t) b = Add(x, t) y = Mul(b, s) }""")
    after = canonical(proto)
    assert after.ByteSize() < 5000
    assert "ReduceMax" not in [node.op_type for node in after.graph.node]
    feed = {"x": RNG.standard_normal((1024, 1024)).astype(np.float32)}
    np.testing.assert_allclose(answer(after, feed), answer(proto, feed), rtol=1e-5)


def test_chance_and_outputs_stay() -> None:
    nodes = "r = RandomNormalLike(w) k = Mul(w, r)"
    assert "RandomNormalLike" in [node.op_type for node in canonical(model(nodes)).graph.node]
    shown = model("k = Mul(w, eps)")
    shown.graph.output.append(onnx.helper.make_tensor_value_info("k", 1, list(WEIGHT)))
    after = canonical(shown)
    assert [value.name for value in after.graph.output] == ["y", "k"]
    feed = {"x": RNG.standard_normal((2, 24, 9, 9)).astype(np.float32)}
    np.testing.assert_allclose(answer(after, feed), answer(shown, feed), rtol=1e-5, atol=1e-5)


def test_weights_of_four_bits_are_those_of_the_net(tmp_path) -> None:
    """Four bits in front of a standardisation would be another net."""
    source = tmp_path / "net.onnx"
    onnx.save(model(COMPUTED["standardised by a batch norm"]), source)
    made = convertkit.export(source, "onnxruntime", w4=True, output=tmp_path / "out")
    feed = {"x": RNG.standard_normal((4, 24, 9, 9)).astype(np.float32)}
    want = answer(onnx.load(source), feed)
    noise = made.run(feed)["y"] - want
    assert 10 * np.log10((want**2).sum() / (noise**2).sum()) > 15
    assert made.path.stat().st_size < 0.4 * source.stat().st_size
