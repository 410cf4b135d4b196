"""Files that declare a number for a size that follows from the data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import convertkit
from convertkit.converters.onnx.computed_sizes import free_computed_sizes

_HEAD = '<ir_version: 8, opset_import: ["" : 17]> g '
_CASES = {
    "NonZero": ("(float[3,4] x) => (int64[2,7] y) { y = NonZero(x) }", [2, "y_1"]),
    "a name that an input has": ("(float[3,y_1] x) => (int64[2,7] y) { y = NonZero(x) }", [2, "y_1_"]),
    "Unique": ("(int64[6] x) => (int64[4] y) { y = Unique(x) }", ["y_0"]),
    "Compress": ("(float[3,4] x, bool[3] c) => (float[2,4] y) { y = Compress<axis = 0>(x, c) }", ["y_0", 4]),
    "what follows": (
        "(float[3,4] x) => (float[9,2] y) { n = NonZero(x) t = Transpose<perm = [1, 0]>(n) y = Cast<to = 1>(t) }",
        ["y_0", 2],
    ),
    "joined to one size again": (
        "(float[3,4] x) => (float[2] y) { n = NonZero(x) f = Cast<to = 1>(n) y = ReduceSum<keepdims = 0>(f, a) }",
        [2],
    ),
    "given ends": (
        "(float[8,4] x, int64[1] e) => (float[3,4] y) { y = Slice(x, b, e, b) }",
        ["y_0", 4],
    ),
    "a given number of the largest": (
        "(float[8,4] x, int64[1] k) => (float[3,4] y) { y, i = TopK<axis = 0>(x, k) }",
        ["y_0", 4],
    ),
    "given ends of the first axes": (
        "(float[8,4] x, int64[1] e) => (float[3,4] y) { y = Slice(x, b, e) }",
        ["y_0", 4],
    ),
    "a given size among others": (
        "(float[6] x, int64 n) => (float[2,3] y) { u = Unsqueeze(n, b) s = Concat<axis = 0>(u, a3) y = Reshape(x, s) }",
        ["y_0", 3],
    ),
    "four from a given place": (
        "(float[8,4] x, int64[1] s) => (float[3,4] y) { e = Add(s, a3) y = Slice(x, s, e, b) }",
        [3, 4],
    ),
    "filled up": (
        "(float[8] x) => (int64[1,10] y) { n = NonZero(x) s = Shape(n) t = Gather(s, one) m = Sub(ten, t) "
        "z = Concat<axis = 0>(zeros3, m) y = Pad(n, z) }",
        [1, 10],
    ),
    "behind what was filled up": (
        "(float[8] x) => (int64[1,10] y) { n = NonZero(x) s = Shape(n) t = Gather(s, one) m = Sub(ten, t) "
        "z = Concat<axis = 0>(zeros3, m) p = Pad(n, z) y = Neg(p) }",
        [1, 10],
    ),
    "a stored size": ("(float[6] x) => (float[2,3] y) { y = Reshape(x, a23) }", [2, 3]),
}
_STORED = {
    "a": [1],
    "b": [0],
    "a3": [3],
    "a23": [2, 3],
    "one": [1],
    "ten": [10],
    "zeros3": [0, 0, 0],
}


def _model(body: str) -> onnx.ModelProto:
    model = onnx.parser.parse_model(_HEAD + body)
    for name, numbers in _STORED.items():
        if any(name in node.input for node in model.graph.node):
            model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(numbers, np.int64), name))
    return model


@pytest.mark.parametrize("case", _CASES)
def test_sizes_of_outputs_are_free_where_the_data_tell_them(case):
    body, expected = _CASES[case]
    model = ir.from_proto(_model(body))
    free_computed_sizes(model)
    (output,) = model.graph.outputs
    assert output.shape is not None
    assert [dim.value if isinstance(dim, ir.SymbolicDim) else dim for dim in output.shape] == expected


def test_a_cut_of_opset_nine_is_told_by_attributes():
    text = """<ir_version: 4, opset_import: ["" : 9]> g (float[3,4] x) => (int64[1,7] y)
        { n = NonZero(x) y = Slice<axes = [0], starts = [0], ends = [1]>(n) }"""
    model = ir.from_proto(onnx.parser.parse_model(text))
    free_computed_sizes(model)
    assert [str(dim) for dim in model.graph.outputs[0].shape or ()] == ["1", "y_1"]


def test_a_long_chain_that_hands_on_a_given_size_takes_no_time():
    steps = " ".join(f"c{i + 1} = Gather(c{i}, c{i})" for i in range(60))
    body = "(float[1] x, int64[1] n) => (float[2] y) { c0 = Identity(n) " + steps + " y = Expand(x, c60) }"
    model = ir.from_proto(_model(body))
    free_computed_sizes(model)
    (output,) = model.graph.outputs
    assert output.shape is not None
    assert str(output.shape[0]) == "y_0"


@pytest.mark.parametrize("target", ["onnxruntime", "tflite"])
def test_the_delivered_file_says_that_the_size_is_free(tmp_path: Path, target):
    body, _ = _CASES["NonZero"]
    onnx.save(_model(body), tmp_path / "m.onnx")
    result = convertkit.export(tmp_path / "m.onnx", target=target, output=tmp_path / "out")
    (output,) = result.artifact.outputs
    assert output.shape == (2, "y_1")
