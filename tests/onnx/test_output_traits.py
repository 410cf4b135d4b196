"""What the graph tells of its outputs: clamps, choices, values that no input reaches."""

import onnx.parser
import onnx_ir as ir
import pytest

from convertkit.onnx.specs import interface


def traits(body, declared="float[2,3] x"):
    text = f'<ir_version: 9, opset_import: ["" : 18]> g ({declared}) => (y) {{ {body} }}'
    model = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text))
    (output,) = interface(ir.from_proto(model))[1]
    return {name for name in ("clamped", "discrete", "fixed") if getattr(output, name)}


@pytest.mark.parametrize(
    ("body", "classes"),
    [
        ("y = ArgMax<axis = 1>(x)", 3),
        ("a = ArgMin(x) y = Cast<to = 6>(a)", 2),
        ("k = Constant<value = int64[1] {2}>() v, i = TopK(x, k) y = Squeeze(i)", 3),
        ("k = Constant<value = int64[1] {2}>() y, i = TopK(x, k)", None),
        ("y = Relu(x)", None),
        ("a = ArgMax<axis = 1>(x) k = Constant<value = int64[1,1] {0}>() y = GatherElements(a, k)", 3),
        ("c = Constant<value_float = 2.0>() y = Div(x, c)", None),
    ],
)
def test_classes_that_an_output_tells(body, classes):
    text = f'<ir_version: 9, opset_import: ["" : 18]> g (float[2,3] x) => (y) {{ {body} }}'
    model = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text))
    (output,) = interface(ir.from_proto(model))[1]
    assert output.classes == classes


@pytest.mark.parametrize(
    "body",
    [
        "a = ArgMax<axis = 1>(x) b = Equal(a, zero) y = Where(b, a, zero)",
        "r = Reshape(x, row) v, i = TopK(r, few) y = Div(i, two)",
    ],
)
def test_classes_behind_a_suppression(body):
    """Zeros behind the last detection, and places among classes times candidates."""
    given = "int64 zero = {0}, int64 two = {2}, int64[2] row = {1, 6}, int64[1] few = {2}"
    text = f'<ir_version: 9, opset_import: ["" : 18]> g (float[2,3] x) => (y) <{given}> {{ {body} }}'
    model = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text))
    (output,) = interface(ir.from_proto(model))[1]
    assert output.classes == 3


@pytest.mark.parametrize(
    ("body", "declared", "expected"),
    [
        ("r = Relu(x) y = Transpose(r)", "float[2,3] x", {"clamped"}),
        ("y = Exp(x)", "float[2,3] x", set()),
        ("y = Hardmax(x)", "float[2,3] x", {"discrete"}),
        ("b = IsNaN(x) y = Cast<to = 1>(b)", "float[2,3] x", {"discrete"}),
        ("h = Cast<to = 10>(x) y = Cast<to = 1>(h)", "float[2,3] x", set()),
        ("b = IsNaN(x) c = Cast<to = 1>(b) y = ReduceMax(c)", "float[2,3] x", {"discrete"}),
        ("b = IsNaN(x) c = Cast<to = 1>(b) y = Max(c, x)", "float[2,3] x", {"clamped"}),
        ("b = IsNaN(x) k = Constant<value_float = 2.0>() y = Where(b, k, x)", "float[2,3] x", set()),
        ("y = Shape(x)", "float[2,3] x", {"fixed"}),
        ("y = Shape(x)", "float[N,3] x", set()),
        ("s = Shape(x) y = Cast<to = 1>(s)", "float[2,3] x", {"fixed", "discrete"}),
        ("y = EyeLike(x)", "float[2,3] x", {"fixed"}),
        ("s = Shape(x) z = Cast<to = 1>(s) m = ReduceMax(x) y = Add(z, m)", "float[2,3] x", set()),
        ("y = RandomNormal<shape = [2, 3]>()", "float[2,3] x", set()),
    ],
)
def test_traits_of_an_output(body, declared, expected):
    assert traits(body, declared) == expected


@pytest.mark.parametrize(
    ("body", "weights", "fixed"),
    [
        ("y = MatMul(x, w)", "{0, 0, 0}", True),
        ("m = MatMul(x, w) y = Add(m, b)", "{0, 0, 0}", True),
        ("y = Gemm(x, w, b)", "{0, 0, 0}", True),
        ("m = ReduceMax(x) y = Gemm(x, w, m)", "{0, 0, 0}", False),
        ("y = MatMul(x, w)", "{0, 0, 1}", False),
        ("y = Mul(x, b)", "{0, 0, 0}", False),
    ],
)
def test_no_input_reaches_beyond_weights_of_zeros(body, weights, fixed):
    """As of a classifier that was not trained."""
    given = f"float[3,1] w = {weights}, float b = {{2.5}}"
    text = f'<ir_version: 9, opset_import: ["" : 18]> g (float[2,3] x) => (y) <{given}> {{ {body} }}'
    model = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text))
    (output,) = interface(ir.from_proto(model))[1]
    assert output.fixed == fixed


@pytest.mark.parametrize("shape", ["", "[1]"])
def test_the_step_of_integers_that_an_output_is_made_of(shape):
    text = (
        f'<ir_version: 9, opset_import: ["" : 18]> g (int8[1] x) => (float[1] y) <float{shape} s = {{0.5}}>'
        "{ y = DequantizeLinear<axis = 0>(x, s) }"
    )
    (output,) = interface(ir.from_proto(onnx.parser.parse_model(text)))[1]
    assert output.lsb == 0.5
