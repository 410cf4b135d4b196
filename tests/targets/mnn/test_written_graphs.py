"""Graphs that MNN computes differently or does not convert, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import parser

from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.save import save_model
from convertkit.targets.mnn.runner import MnnRunner
from convertkit.targets.mnn.stage import WriteMnn
from tests import installed

installed.needs("MNN")

RNG = np.random.default_rng(4)
HEADER = '<ir_version: 10, opset_import: ["" : 21]> g '
REALS = np.float32([[0, 0.5, 2, np.nan, -1e-3, -0.0]])
ROWS: Mapping[str, tuple[str, Mapping[str, np.ndarray]]] = {
    "reals-as-truths": (
        "(float[1,6] x) => (float[1,6] y, bool[1,6] z) { b = Cast <to = 9> (x) y = Cast <to = 1> (b) z = Not(b) }",
        {"x": REALS},
    ),
    "integers-as-truths": (
        "(int64[1,4] x) => (float[1,4] y, bool[1,4] z) { b = Cast <to = 9> (x) y = Cast <to = 1> (b) z = Not(b) }",
        {"x": np.array([[0, 1, 256, -1]])},
    ),
    "infinite": (
        "(float[4] x) => (bool[4] a, bool[4] b, bool[4] c)"
        " { a = IsInf(x) b = IsInf <detect_negative = 0> (x) c = IsInf <detect_positive = 0> (x) }",
        {"x": np.array([np.inf, -np.inf, 3, np.nan])},
    ),
    "no-number": ("(float[1,6] x) => (bool[1,6] y) { y = IsNaN(x) }", {"x": REALS}),
    "einsum": (
        "(float[2,5,8] a, float[2,4,8] b, float[2,5,3] c) => (float[2,3,4] y)"
        ' { y = Einsum <equation = "bsd,btd,bse->bet"> (a, b, c) }',
        {"a": RNG.normal(size=(2, 5, 8)), "b": RNG.normal(size=(2, 4, 8)), "c": RNG.normal(size=(2, 5, 3))},
    ),
    "logarithms-of-sums": (
        "(float[2,5,3] x) => (float[2,3] a, float[2,5,1] b, float c) <int64[1] m = {1}, int64[1] l = {-1}>"
        " { a = ReduceLogSumExp <keepdims = 0> (x, m) b = ReduceLogSumExp(x, l)"
        " c = ReduceLogSumExp <keepdims = 0> (x) }",
        {"x": 90 + 9 * RNG.normal(size=(2, 5, 3))},
    ),
    "logarithm-of-an-infinite-sum": (
        "(float[6,2] x) => (float[6] a) <int64[1] l = {1}> { a = ReduceLogSumExp <keepdims = 0> (x, l) }",
        {"x": np.array([[np.inf, 2], [np.inf, -np.inf], [-np.inf] * 2, [3, -np.inf], [np.inf, np.nan], [1, np.nan]])},
    ),
    "pads-that-cut-more-than-there-is": (
        "(float[N,M] x) => (float[N,K] y) <int64[4] p = {0, 5, 0, -7}> { y = Pad(x, p) }",
        {"x": RNG.normal(size=(2, 4))},
    ),
    "pads-that-cut": (
        "(float[N,3,5,6] x) => (float[N,3,6,7] y) <int64[8] p = {0, 0, 0, 1, 0, 0, 2, -1}, float v = {0.5}>"
        " { y = Pad(x, p, v) }",
        {"x": RNG.normal(size=(2, 3, 5, 6))},
    ),
    "cuts-of-named-axes": (
        "(float[N,3,5,H] x) => (float[N,3,3,K] y) <int64[4] p = {2, -1, -1, -1}, int64[2] a = {-1, 2}>"
        " { y = Pad(x, p, , a) }",
        {"x": RNG.normal(size=(2, 3, 5, 6))},
    ),
    "last-states-of-both-directions": (
        "(float[T,2,3] x, float[2,12,3] w, float[2,12,4] r) => (float[2,2,4] h)"
        ' { s, h = GRU <hidden_size = 4, direction = "bidirectional"> (x, w, r) }',
        {name: RNG.normal(size=shape) for name, shape in {"x": (5, 2, 3), "w": (2, 12, 3), "r": (2, 12, 4)}.items()},
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_it_computes_what_onnx_says(tmp_path: Path, name: str):
    text, numbers = ROWS[name]
    feed = {key: value if value.dtype.kind == "i" else value.astype(np.float32) for key, value in numbers.items()}
    proto = parser.parse_model(HEADER + text)
    source = save_model(canonicalize(ir.from_proto(proto)), tmp_path / "model.onnx", "test")
    made = tmp_path / "made"
    made.mkdir()
    with MnnRunner(WriteMnn("float32").run(source, made)) as runner:
        found = runner.run(feed)
    wanted = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feed)
    for got, expected in zip(found.values(), wanted, strict=True):
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
