"""Equal elements are normalised to exactly 0 where an epsilon does not hide the error of their mean."""

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from convertkit.onnx.canonical import canonicalize

NORMS = {
    "layer": "y = LayerNormalization<epsilon: float = 1e-12>({x}, ones)",
    "layer of two axes": "y = LayerNormalization<axis = -2, epsilon: float = 1e-12>({x}, plane)",
    "instance": "y = InstanceNormalization<epsilon: float = 1e-12>({x}, three, three)",
}
ONES = {"ones": (37,), "plane": (5, 37), "three": (3,), "one": (), "only": (1,)}
DRAWN = {"bias": (37,), "dense": (37, 37), "conv": (3, 3, 1, 1), "wide": (3, 3, 3, 3)}
VIEWS = {"groups": [0, 3, -1], "group": [0, 1, -1]}
MAY_BE_EQUAL = {
    "the input": ("", "x"),
    "a logarithm": ("s = Mul(x, x) t = Add(s, one) l = Log(t)", "l"),
    "a dense layer without a bias, behind it a function": ("s = MatMul(x, dense) l = Sigmoid(s)", "l"),
    "a convolution": ("s = Conv(x, conv) l = Sigmoid(s)", "l"),
}
SMALL_MAY_BE_EQUAL = {
    "a dense layer without a bias": ("s = MatMul(x, dense) l = Sigmoid(s)", "l"),
    "a convolution with padding": ("l = Conv<pads = [1, 1, 1, 1]>(x, wide)", "l"),
    "a transposed convolution": ("l = ConvTranspose(x, conv)", "l"),
}
GROUPS = "n = InstanceNormalization<epsilon: float = 1e-12>({x}, three, three) s = Shape(x) y = Reshape(n, s)"
GROUP = GROUPS.replace("three", "only")
VARIES = {
    "a bias": ("s = MatMul(x, dense) l = Add(bias, s)", "l"),
    "a bias and a residual": ("r = Relu(x) s = MatMul(r, dense) b = Add(s, bias) l = Add(r, b)", "l"),
    "a bias in front of a dense layer": ("b = Add(x, bias) s = MatMul(b, dense) l = Sigmoid(s)", "l"),
}


def canonical(body: str, norm: str = NORMS["layer"]) -> onnx.ModelProto:
    before, x = body if isinstance(body, tuple) else ("", body)
    head = '<ir_version: 8, opset_import: ["" : 18]> g (float[N,3,5,37] x) => (float[N,3,5,37] y) '
    parsed = onnx.parser.parse_model(f"{head} {{ {before} {norm.format(x=x)} }}")
    rng = np.random.default_rng(0)
    arrays = {name: np.ones(shape) for name, shape in ONES.items()}
    arrays |= {name: rng.standard_normal(shape) for name, shape in DRAWN.items()}
    parsed.graph.initializer.extend(
        onnx.numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()
    )
    parsed.graph.initializer.extend(onnx.numpy_helper.from_array(np.array(view), name) for name, view in VIEWS.items())
    return ir.to_proto(canonicalize(ir.from_proto(parsed)))


def run(proto: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    return ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


def shifts(proto: onnx.ModelProto) -> int:
    return [node.op_type for node in proto.graph.node].count("Slice")


@pytest.mark.parametrize("norm", NORMS)
def test_equal_elements_become_the_bias(norm):
    made = canonical(MAY_BE_EQUAL["the input"], NORMS[norm])
    for number in np.random.default_rng(1).uniform(-300, 300, 20).astype(np.float32):
        result = run(made, np.full((2, 3, 5, 37), number))
        assert (result == (1.0 if norm == "instance" else 0.0)).all()


@pytest.mark.parametrize("norm", NORMS)
def test_other_elements_are_normalised_as_before(norm):
    x = np.random.default_rng(2).standard_normal((2, 3, 5, 37)).astype(np.float32) + 4
    axes = (-1,) if norm == "layer" else (-2, -1)
    wide = x.astype(np.float64)
    expected = (wide - wide.mean(axes, keepdims=True)) / wide.std(axes, keepdims=True) + (norm == "instance")
    np.testing.assert_allclose(run(canonical("x", NORMS[norm]), x), expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("body", MAY_BE_EQUAL)
def test_what_may_be_equal_is_shifted_once(body):
    norm = NORMS["instance" if "convolution" in body else "layer"]
    once = canonical(MAY_BE_EQUAL[body], norm)
    again = ir.to_proto(canonicalize(ir.from_proto(once)))
    assert (shifts(once), shifts(again)) == (1, 1)


@pytest.mark.parametrize("body", VARIES)
def test_what_a_bias_makes_vary_stays(body):
    assert shifts(canonical(VARIES[body])) == 0


@pytest.mark.parametrize("epsilon", ["1e-5", "1e-3"])
@pytest.mark.parametrize("norm", NORMS)
def test_a_usual_epsilon_does_not_hide_the_mean_of_large_elements(norm, epsilon):
    made = canonical("x", NORMS[norm].replace("1e-12", epsilon))
    for number in np.random.default_rng(1).uniform(-3000, 3000, 20).astype(np.float32):
        result = run(made, np.full((2, 3, 5, 37), number))
        assert (result == (1.0 if norm == "instance" else 0.0)).all()


@pytest.mark.parametrize("body", SMALL_MAY_BE_EQUAL)
def test_a_usual_epsilon_hides_what_is_equal_on_silence_alone(body):
    norm = NORMS["instance" if "convolution" in body else "layer"]
    assert shifts(canonical(SMALL_MAY_BE_EQUAL[body], norm)) == 1
    assert shifts(canonical(SMALL_MAY_BE_EQUAL[body], norm.replace("1e-12", "1e-5"))) == 0


def test_a_convolution_without_padding_leaves_constants_equal():
    usual = NORMS["instance"].replace("1e-12", "1e-5")
    assert shifts(canonical(MAY_BE_EQUAL["a convolution"], usual)) == 1
    assert shifts(canonical(("r = Reshape(x, groups)", "r"), GROUPS.replace("1e-12", "1e-5"))) == 1
    mixed = ("l = Conv(x, conv) r = Reshape(l, group)", "r")
    assert [shifts(canonical(mixed, GROUP.replace("1e-12", epsilon))) for epsilon in ("1e-12", "1e-5")] == [1, 0]
