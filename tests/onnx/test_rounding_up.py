"""Pools that round up: a window that begins behind the values is in no result, and in no size that is told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import parser

import convertkit
from convertkit.onnx.canonical import canonicalize

TWO = "ceil_mode=1, kernel_shape=[2,2], strides=[2,2], pads=[1,1,1,1]"
THREE = "ceil_mode=1, kernel_shape=[3,3], strides=[2,2]"
MIXED = "ceil_mode=1, kernel_shape=[3,3], strides=[4,2], pads=[1,0,1,0]"
BODIES = {
    "maxima": f"y = MaxPool<{TWO}>(x)",
    "averages": f"y = AveragePool<{TWO}>(x)",
    "averages that count padding": f"y = AveragePool<{TWO}, count_include_pad=1>(x)",
    "norms": f"y = LpPool<{TWO}>(x)",
    "steps beyond the window": "y = MaxPool<ceil_mode=1, kernel_shape=[1,1], strides=[2,3]>(q)",
    "no padding at all": 'y = MaxPool<ceil_mode=1, auto_pad="VALID", kernel_shape=[1,1], strides=[2,2]>(q)',
    "one behind the other": (
        f"p = MaxPool<{TWO}>(x) r = Relu(p) y = MaxPool<ceil_mode=1, kernel_shape=[1,1], strides=[2,2]>(r)"
    ),
    "another axis has a part of a window": f"y = MaxPool<{MIXED}>(q)",
    "averages that count it": f"y = AveragePool<{MIXED}, count_include_pad=1>(q)",
    "averages that count padding at both ends": (
        "y = AveragePool<ceil_mode=1, kernel_shape=[3,3], strides=[4,2], pads=[1,0,1,1], count_include_pad=1>(x)"
    ),
    "and averages": f"y = AveragePool<{MIXED}>(q)",
}
"""Graphs of x, 15 by 15, and q, 15 by 14."""


def model(body: str) -> onnx.ModelProto:
    return parser.parse_model(f"""<ir_version: 9, opset_import: ["": 18]>
        pools (float[N,2,15,15] x) => (float[N,2,h,w] y) <int64[8] fewer = {{0,0,0,0,0,0,0,-1}}> {{
            q = Pad(x, fewer) {body} }}""")


@pytest.mark.parametrize("name", BODIES)
def test_sizes_are_those_of_the_results(name: str) -> None:
    source, x = model(BODIES[name]), np.random.default_rng(0).standard_normal((1, 2, 15, 15)).astype(np.float32)
    made = canonicalize(ir.from_proto(source))
    assert not any(node.attributes.get_int("ceil_mode", 0) for node in made.graph)
    (want,) = ort.InferenceSession(source.SerializeToString()).run(None, {"x": x})
    (got,) = ort.InferenceSession(ir.to_proto(made).SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)  # sums in another order
    told = made.graph.outputs[0].shape
    assert told is not None
    assert [size for size in told if isinstance(size, int)] == list(want.shape[1:])


def test_what_rounding_up_reaches_stays() -> None:
    made = canonicalize(ir.from_proto(model(f"y = MaxPool<{THREE}>(q)")))
    assert [node.attributes.get_int("ceil_mode", 0) for node in made.graph if "Pool" in node.op_type] == [1]


@pytest.mark.parametrize("target", ["onnxruntime", "tflite"])
def test_such_a_file_is_delivered(tmp_path: Path, target: str) -> None:
    onnx.save(model(BODIES["one behind the other"]), tmp_path / "m.onnx")
    done = convertkit.export(tmp_path / "m.onnx", target=target, output=tmp_path / "out")
    assert done.passed
    assert sorted(done.artifact.outputs[0].shape[1:]) == [2, 4, 4]


def test_a_size_that_is_declared_right_stays() -> None:
    """Where another axis is free the pool stays as it is, and ONNX's rule is not asked for the size."""
    proto = parser.parse_model("""<ir_version: 9, opset_import: ["": 18]>
        pools (float[1,1,N,9] x) => (float[1,1,M,3] y) {
            y = MaxPool<kernel_shape=[3,2], strides=[2,3], pads=[1,0,1,0], ceil_mode=1>(x) }""")
    shape = canonicalize(ir.from_proto(proto)).graph.outputs[0].shape
    assert shape is not None
    assert shape[3] == 3
