"""NaN, infinities, negative zero and the ends of the range, through operators that IEEE 754 or ONNX define for them.

Left out, because LiteRT's own kernels differ (XNNPACK): EXP of NaN is 0, MAXIMUM, MINIMUM, REDUCE_MAX and REDUCE_MIN
drop NaN, convolutions and FULLY_CONNECTED do so, too, and make infinities the largest number, LOGISTIC is NaN for
magnitudes from about 1e21 to 2e38, SQRT is 1.5 times too large from 1e38 on, and subnormal numbers count as zero.
SIN and COS leave [-1, 1] from about 1e9 on, where neighbouring float32 numbers lie periods apart; SIN, MAX_POOL_2D and
CUMSUM make 0 of -0; LOG of NaN and of infinity is 88 on processors without AVX-512; QUANTIZE to int16 wraps around
beyond 2^31 steps.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.targets.tflite.compiled import compiled

VALUES = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e37, -1e37, 3.5, -2.5, 0.5, 1.5, -1.0], np.float32)
UNARY = [
    *("Abs", "Neg", "Floor", "Ceil", "Round", "Sign", "Tanh", "Erf", "Relu", "LeakyRelu", "Elu", "Selu", "Softplus"),
    *("Softsign", "HardSigmoid", "Gelu", "Mish", "Identity", "Atan", "Celu", "Reciprocal", "Sqrt", "IsNaN"),
    *("IsInf", "Softmax"),
]
BINARY = ["Add", "Sub", "Mul", "Pow", "Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual"]
LONGER = ["Clip(x, low, high)", "Pad(x, sides)", "Where(flags, x, w)", "ReduceSum(x)", "Concat<axis=0>(x, w)"]
FLAGS = {"IsNaN", "IsInf", *BINARY[4:]}


def check(expression: str, kind: str) -> None:
    case = compiled(f"""<ir_version: 8, opset_import: ["" : 21]>
        g (float[12] x, float[12] w, bool[12] flags) => ({kind}[n] y) {{
            low = Constant<value_float=-1.0>() high = Constant<value_float=1.0>() sides = Constant<value_ints=[1,1]>()
            y = {expression} }}""")
    feed = {"x": VALUES, "w": VALUES[::-1].copy(), "flags": np.arange(12) % 3 > 0}
    ((expected, result),) = case.both([feed])
    want, have = expected["y"], result["y"]
    if want.dtype == bool:
        np.testing.assert_array_equal(have, want)
        return
    finite = np.isfinite(want)
    np.testing.assert_array_equal(have[~finite], want[~finite])
    np.testing.assert_allclose(have[finite], want[finite], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op", UNARY)
def test_of_one(op: str) -> None:
    check(f"{op}(x)", "bool" if op in FLAGS else "float")


SIGNED = [
    *(
        "Abs",
        "Neg",
        "Floor",
        "Ceil",
        "Round",
        "Sign",
        "Tanh",
        "Erf",
        "Relu",
        "LeakyRelu",
        "Softsign",
        "Identity",
        "Sqrt",
    ),
    *("Atan", "Asin", "Sinh", "Tan", "Asinh", "Atanh", "Reciprocal"),
]


@pytest.mark.parametrize("op", SIGNED)
def test_zeros_keep_their_sign(op: str) -> None:
    """What divides by it, or asks for an angle, sees it."""
    case = compiled(f"""<ir_version: 8, opset_import: ["" : 21]> g (float[4] x) => (float[4] y) {{ y = {op}(x) }}""")
    ((expected, result),) = case.both([{"x": np.array([0.0, -0.0, 0.5, -0.5], np.float32)}])
    np.testing.assert_array_equal(np.signbit(result["y"]), np.signbit(expected["y"]))


def test_acosh_is_nan_below_one() -> None:
    case = compiled("""<ir_version: 8, opset_import: ["" : 21]> g (float[8] x) => (float[8] y) { y = Acosh(x) }""")
    ((expected, result),) = case.both([{"x": np.array([-1e20, -1e4, -3, -1, 0.5, 1, 7, 1e20], np.float32)}])
    assert np.isnan(expected["y"][:5]).all()
    assert np.isnan(result["y"][:5]).all()
    np.testing.assert_allclose(result["y"][5:], expected["y"][5:], rtol=1e-6)


def test_atanh_is_infinite_at_its_ends() -> None:
    case = compiled("""<ir_version: 8, opset_import: ["" : 21]> g (float[6] x) => (float[6] y) { y = Atanh(x) }""")
    ((expected, result),) = case.both([{"x": np.array([-1, 1, 0.99, -0.5, 1.5, 0], np.float32)}])
    assert np.isinf(expected["y"][:2]).all()
    np.testing.assert_allclose(result["y"], expected["y"], rtol=2e-6)


def test_log() -> None:
    case = compiled("""<ir_version: 8, opset_import: ["" : 21]> g (float[10] x) => (float[10] y) { y = Log(x) }""")
    ((expected, result),) = case.both([{"x": VALUES[2:]}])
    np.testing.assert_allclose(result["y"], expected["y"], rtol=1e-6)


@pytest.mark.parametrize("op", BINARY)
def test_of_two(op: str) -> None:
    check(f"{op}(x, w)", "bool" if op in FLAGS else "float")


@pytest.mark.parametrize("expression", LONGER)
def test_of_more(expression: str) -> None:
    check(expression, "float")


@pytest.mark.parametrize(
    "expression",
    [
        *("Relu(x)", "Add(x, x)", "Transpose(x)", "Concat<axis=0>(x, x)", "Softmax(x)", "Exp(x)", "ReduceSum(x)"),
        *("Softmax<axis=0>(x)", "LogSoftmax<axis=0>(x)"),
        *(
            "ReduceMax<keepdims=0>(x)",
            "Gather<axis=1>(x, first)",
            "Pad(x, sides)",
            "MatMul(x, w)",
            "Slice(x, first, first)",
        ),
    ],
)
def test_of_nothing(expression: str) -> None:
    """No rows: what stays without elements, and what sums over them give."""
    case = compiled(
        f"""<ir_version: 8, opset_import: ["" : 21]> g (float[0,3] x) => (float[...] y) {{
            first = Constant<value_ints=[0]>() sides = Constant<value_ints=[1,0,0,0]>()
            sizes = Constant<value_ints=[3,4]>() w = ConstantOfShape(sizes)
            y = {expression} }}""".replace("float[...] y", "y")
    )
    case.agree({"x": np.zeros((0, 3), np.float32)})
