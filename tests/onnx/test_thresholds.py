"""Comparisons of rising functions with constants, on every neighbour of the constant."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from convertkit.onnx.thresholds import compare_arguments, largest, smallest
from tests.targets.tflite.compiled import compiled

KINDS = ("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal")
_TINY, _SMALL = np.float32(1e-10), np.float32(1e-5)
FUNCTIONS = {
    "Sqrt": (np.sqrt, np.square, [np.sqrt(_SMALL), 0.0, -0.0, -1.0, 3.0, 1e-22, 1e-30, 1.8446743e19, 1e30]),
    "Exp": (np.exp, np.log, [np.exp(np.float32(-3)), 1.0, 0.0, -1.0, 1e-42, 3e38, 7.5]),
    "Log": (np.log, np.exp, [np.log(_TINY), 0.0, -0.0, 88.0, -103.0, -200.0, 1e-9]),
    "Sigmoid": (lambda x: 1 / (1 + np.exp(-x)), lambda y: -np.log(1 / y - 1), [0.5, 0.9, 1e-30, 0.0, 1.0, 2.0, -1.0]),
    "Tanh": (np.tanh, np.arctanh, [0.0, -0.0, 0.3, -0.9999, 1.0, -1.0, 1e-20, 2.0]),
}
"""Each with what it undoes, and what it is compared with."""


def limits(name: str) -> np.ndarray:
    return np.array([*FUNCTIONS[name][2], np.inf, -np.inf, np.nan], np.float32)


def points(name: str) -> np.ndarray:
    """What is near the places where the function passes its limits, and what may be outside of its domain."""
    with np.errstate(all="ignore"):
        up = down = FUNCTIONS[name][1](limits(name).astype(np.float64)).astype(np.float32)
        near = [up]
        for _ in range(3):
            up, down = np.nextafter(up, np.float32(np.inf)), np.nextafter(down, np.float32(-np.inf))
            near += [up, down]
    others = np.array([-1, -0.0, 0, 1e-45, -1e-45, 1e-38, np.nan, np.inf, -np.inf, 4], np.float32)
    return np.concatenate([*near, others])


@pytest.mark.parametrize("equal", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_ends_are_those_of_results_rounded_to_nearest(name: str, equal: bool) -> None:
    def function(x: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.asarray(FUNCTIONS[name][0](x.astype(np.float64))).astype(np.float32)

    x, limit = points(name)[:, None], limits(name)
    results = function(x)
    inside = ~np.isnan(results)
    below, above = (np.less_equal, np.greater_equal) if equal else (np.less, np.greater)
    np.testing.assert_array_equal((x <= largest(function, limit, equal=equal)) & inside, below(results, limit))
    np.testing.assert_array_equal((x >= smallest(function, limit, equal=equal)) & inside, above(results, limit))


def model(kind: str, *, constant_first: bool) -> onnx.ModelProto:
    operands = "c, r" if constant_first else "r, c"
    text = f"""<ir_version: 9, opset_import: ["" : 18]>
        g (float[N, 1] x) => (bool[N, {len(limits("Sqrt"))}] y) {{ r = Sqrt (x) y = {kind} ({operands}) }}"""
    made = onnx.parser.parse_model(text)
    made.graph.initializer.append(numpy_helper.from_array(limits("Sqrt"), "c"))
    return onnx.shape_inference.infer_shapes(made)


@pytest.mark.parametrize("constant_first", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_answer_is_that_of_roots_rounded_to_nearest(kind: str, constant_first: bool) -> None:
    before = model(kind, constant_first=constant_first)
    after = ir.from_proto(before)
    compare_arguments(after)
    assert "Sqrt" not in {node.op_type for node in after.graph}
    x = points("Sqrt")[:, None]
    np.testing.assert_array_equal(*(evaluated(each, x) for each in (ir.to_proto(after), before)))


def evaluated(proto: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return onnx.reference.ReferenceEvaluator(proto).run(None, {"x": x})[0]


@pytest.mark.parametrize(("text", "constant"), [
    ("f = Sigmoid (x)", 0.5),
    ("v = Relu (x) f = Exp (v)", 1.0),
    ("v = Clip (x, low, high) f = Tanh (v)", 1.0),
    ("v = Clip (x, low, high) f = Exp (v)", 1.0),
])  # fmt: skip
def test_what_libraries_decide_on_single_elements_stays(text: str, constant: float) -> None:
    """Near 0, or where a function is all but level, the source's own roundings tell."""
    made = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 18]> g (float[6] x) => (bool[6] y) {{ {text} y = GreaterOrEqual (f, c) }}'
    )
    stored = {"low": -9.5, "high": 9.5, "c": constant}
    made.graph.initializer.extend(numpy_helper.from_array(np.array(v, np.float32), name) for name, v in stored.items())
    after = ir.from_proto(onnx.shape_inference.infer_shapes(made))
    compare_arguments(after)
    assert {"Sigmoid", "Exp", "Tanh"} & {node.op_type for node in after.graph}


@pytest.mark.parametrize(("low", "text"), [
    (-3.0, "v = Clip (x, low, high) f = Sigmoid (v)"),
    (-3.0, "v = Clip (x, low, high) f = Exp (v)"),
    (-3.0, "v = Clip (x, low, high) e = Exp (v) s = Add (one, e) u = Sub (s, half) f = Div (u, half)"),
    (0.5, "v = Max (x, low) l = Log (v) f = Mul (l, ten)"),
])  # fmt: skip
@pytest.mark.parametrize("units", [-40, -2, 0, 2])
def test_what_a_model_marks_at_a_clamp_is_marked(low: float, text: str, units: int) -> None:
    """The constant is what a library gives there: all elements at the clamp equal it, or none."""
    constant = at(low, text)
    stored = {"low": low, "high": 3.0, "one": 1.0, "half": 0.5, "ten": 10.0, "z": -1.0}
    stored["c"] = constant + np.float32(units) * np.spacing(np.abs(constant))
    made = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 18]> g (float[6] x) => (float[6] y) '
        f"{{ {text} m = LessOrEqual (f, c) y = Where (m, z, one) }}"
    )
    made.graph.initializer.extend(numpy_helper.from_array(np.array(v, np.float32), name) for name, v in stored.items())
    x = np.array([-4, -3, -2.99, 0, 0.5, 5], np.float32)
    (results,) = compiled(made).both([{"x": x}])
    for outputs in results:
        np.testing.assert_array_equal(outputs["y"] < 0, (x <= low) & (units >= -2))


def at(low: float, text: str) -> np.float32:
    function = next(name for name in FUNCTIONS if name in text)
    value = np.float32(FUNCTIONS[function][0](np.float64(low)))
    if "Sub" in text:
        return (value + np.float32(1) - np.float32(0.5)) / np.float32(0.5)
    return value * np.float32(10) if "ten" in text else value


def test_random_numbers_are_no_function_of_anything() -> None:
    text = """<ir_version: 9, opset_import: ["" : 18]> g (float[4] x) => (bool[4] y) <float c = {0.5}> {
        r = RandomUniform <shape=[4], dtype=1> () y = GreaterOrEqual (r, c) }"""
    after = ir.from_proto(onnx.parser.parse_model(text))
    compare_arguments(after)
    assert [node.op_type for node in after.graph] == ["RandomUniform", "GreaterOrEqual"]
