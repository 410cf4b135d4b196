"""What torch's exporter writes around numbers is folded before anything else looks at it."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from convertkit.onnx.plain_constants import fold_plain_constants

HEAD = '<ir_version: 10, opset_import: ["" : 18]>\n'
CONV = """
g (float[N, 2, 4, 4] x) => (float[N, M, 4, 4] y)
<float[3, 2, 1, 1] w = {1, 2, 3, 4, 5, 6}>
{
   zero = Constant<value_float = 0.5>()
   cast = CastLike(zero, x)
   sizes = Shape<start = 0, end = 1>(w)
   axes = Constant<value_ints = [1]>()
   long = Expand(sizes, axes)
   bias = Expand(cast, long)
   c = Conv(x, w, bias)
   low = Constant<value_float = -1.0>()
   bound = CastLike(low, c)
   y = Clip(c, bound)
}
"""


def folded(text):
    proto = onnx.parser.parse_model(HEAD + text)
    model = ir.from_proto(onnx.shape_inference.infer_shapes(proto))
    fold_plain_constants(model)
    return proto, ir.to_proto(model)


def test_bounds_and_a_missing_bias_become_constants():
    before, after = folded(CONV)
    onnx.checker.check_model(after)
    assert [node.op_type for node in after.graph.node] == ["Conv", "Clip"]
    x = np.random.default_rng(0).standard_normal((2, 2, 4, 4)).astype(np.float32)
    expected, got = (ReferenceEvaluator(each).run(None, {"x": x})[0] for each in (before, after))
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("body", "stays"),
    [
        ("g (int64[2] x) => (int64[2] y) {{ a = Constant<value_float = 0.5>() b = CastLike(a, x) y = Add(x, b) }}",
         "CastLike"),
        ("g (float[N, 2] x) => (int64[2] y) {{ s = Shape(x) y = Neg(s) }}", "Shape"),
        ("g (float[2] x) => (float[9999] y) {{ a = Constant<value_float = 0.5>() s = Constant<value_ints = [9999]>() "
         "y = Expand(a, s) }}", "Expand"),
        ("g (float[2] x, float[K] z) => (float[K] y) {{ a = Constant<value_float = 0.5>() s = Shape(z) "
         "e = Expand(a, s) y = Neg(e) }}", "Expand"),
        ("g (float[2, 3] x) => (int64[2] y) {{ y = Shape(x) }}", "Shape"),
    ],
    ids=["inexact", "dynamic size", "large", "free target", "output"],
)  # fmt: skip
def test_what_is_not_known_small_and_exact_stays(body, stays):
    before, after = folded(body.replace("{{", "{").replace("}}", "}"))
    assert stays in [node.op_type for node in after.graph.node]
    assert len(after.graph.node) == len(before.graph.node)


def test_sizes_count_from_the_end_too():
    _, after = folded("g (float[2, 3, 5] x) => (int64[1] y) { s = Shape<start = -2, end = -1>(x) y = Neg(s) }")
    assert [node.op_type for node in after.graph.node] == ["Neg"]
    assert [onnx.numpy_helper.to_array(each).tolist() for each in after.graph.initializer] == [[3]]
