"""One operator through ``--full-integer``: its kernel in the file, and no other arithmetic than integers."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

import convertkit
from convertkit.errors import Unsupported
from convertkit.targets.tflite.inspection import operators

BOTH = ("int8", "int16x8")
BYTES = ("int8",)
ROWS = {
    "MatMul (x, z)": ("[6,16]", "[16,8]", "BATCH_MATMUL", BOTH),
    "MatMul (x, z) batches": ("[2,3,6,16]", "[1,3,16,8]", "BATCH_MATMUL", BOTH),
    "MatMul (x, t)": ("[2,6,16]", "[2,8,16]", "BATCH_MATMUL", BOTH),
    "LogSoftmax (x)": ("[6,16]", "", "LOG_SOFTMAX", BYTES),
    "PRelu (x, slope)": ("[2,6,16]", "", "PRELU", BYTES),
    "ReduceSum <keepdims = 0> (x, last)": ("[6,16]", "", "SUM", BOTH),
    "ReduceMean <keepdims = 0> (x, last)": ("[6,16]", "", "MEAN", BOTH),
    "LayerNormalization (x, slope, slope)": ("[6,16]", "", "MEAN", BYTES),
    "LayerNormalization (x, slope, slope) by rows": ("[2,5,6,16]", "", "RSQRT", BYTES),
    "InstanceNormalization (x, scale, scale)": ("[1,3,9,9]", "", "MEAN", BYTES),
    "Softmax (x)": ("[6,16]", "", "SOFTMAX", BOTH),
    "Conv (x, w)": ("[1,3,9,9]", "", "CONV_2D", BOTH),
    "GatherND (x, pairs)": ("[6,16]", "", "GATHER", BOTH),
    "GatherND <batch_dims = 1> (x, pairs)": ("[6,6,8]", "", "GATHER", BOTH),
    "GatherElements <axis = -1> (x, turned)": ("[6,16]", "", "GATHER", BOTH),
    "AveragePool <kernel_shape = [3,3], pads = [1,1,1,1], count_include_pad = 1> (x)": (
        "[1,3,9,9]",
        "",
        "AVERAGE_POOL_2D",
        BOTH,
    ),
    "AveragePool <kernel_shape = [3,3], strides = [2,2], ceil_mode = 1, count_include_pad = 1> (x)": (
        "[1,3,10,8]",
        "",
        "AVERAGE_POOL_2D",
        BOTH,
    ),
    "AveragePool <kernel_shape = [3], pads = [1,1], count_include_pad = 1> (x)": (
        "[1,3,9]",
        "",
        "AVERAGE_POOL_2D",
        BOTH,
    ),
}
CONSTANTS = {
    "slope": np.linspace(0.1, 0.4, 16, dtype="f4"),
    "scale": np.array([0.5, 1, 2], "f4"),
    "last": np.array([1], np.int64),
    "pairs": np.array([[0, 3], [5, 1], [-1, 2], [2, -4], [1, 0], [3, 3]], np.int64),
    "turned": np.arange(96).reshape(6, 16)[:, ::-1] % 16,
    "w": np.random.default_rng(0).normal(size=(8, 3, 3, 3)).astype("f4"),
}


def model(call, x, z):
    inputs = f"float{x} x" + (f", float{z} z" if z else "")
    swapped = "t = Transpose <perm = [0,2,1]> (z)" if "(x, t)" in call else ""
    text = f'<ir_version: 9, opset_import: ["" : 18]> g ({inputs}) => (float y) {{ {swapped} y = {call} }}'
    proto = parser.parse_model(text)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    used = {name for node in proto.graph.node for name in node.input}
    stored = [onnx.numpy_helper.from_array(value, name) for name, value in CONSTANTS.items() if name in used]
    proto.graph.initializer.extend(stored)
    return onnx.shape_inference.infer_shapes(proto)


@pytest.mark.parametrize(("call", "precision"), [(call, each) for call, row in ROWS.items() for each in row[3]])
def test_integer_kernel(tmp_path, call, precision):
    x, z, kernel, _ = ROWS[call]
    proto = model(call.removesuffix(" batches").removesuffix(" by rows"), x, z)
    onnx.save(proto, tmp_path / "m.onnx")
    rng = np.random.default_rng(1)
    shapes = {each.name: [dim.dim_value for dim in each.type.tensor_type.shape.dim] for each in proto.graph.input}
    data = {name: rng.normal(size=(24 * first, *rest)).astype("f4") for name, (first, *rest) in shapes.items()}
    choices = {precision: True, "full_integer": True, "calib": data, "output": tmp_path / "out"}
    found = operators(convertkit.export(tmp_path / "m.onnx", "tflite", **choices).artifact.path)
    assert kernel in {each.kind for each in found}
    computed = {each.precision for each in found if "QUANTIZE" not in each.kind}
    assert computed - {""} == {precision}  # places in a table stand for themselves


FUNCTIONS = {
    "elu": "p = Greater (x, zero) a = Where (p, zero, x) e = Exp (a) n = Sub (e, one) y = Where (p, x, n)",
    "softsign": "a = Abs (x) d = Add (a, one) y = Div (x, d)",
    "hardshrink": "a = Abs (x) p = LessOrEqual (a, half) y = Where (p, zero, x)",
    "softshrink": "p = Less (x, zero) l = Add (x, half) n = Sub (x, half) s = Where (p, l, n) a = Abs (x) "
    "b = Greater (a, half) y = Where (b, s, zero)",
    "cast to a flag": "p = Greater (x, half) f = Cast <to = 1> (p) y = Mul (f, x)",
    "two of them": "a = Abs (x) d = Add (a, one) s = Div (x, d) "
    "p = Greater (s, zero) m = Mul (s, half) y = Where (p, s, m)",
    "behind a sum": "t = Add (x, slope) p = Greater (t, zero) m = Mul (t, half) y = Where (p, t, m)",
    "in front of a maximum": "p = Greater (x, zero) m = Mul (x, half) t = Where (p, x, m) "
    "y = ReduceMax <keepdims = 1> (t, last)",
}
NUMBERS = {"zero": 0.0, "half": 0.5, "one": 1.0}


def written(lines):
    text = f'<ir_version: 9, opset_import: ["" : 18]> g (float[6,16] x) => (float y) {{ {lines} }}'
    proto = parser.parse_model(text)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    used = {name for node in proto.graph.node for name in node.input}
    stored = {**CONSTANTS, **{name: np.float32(number) for name, number in NUMBERS.items()}}
    proto.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in stored.items() if name in used
    )
    return onnx.shape_inference.infer_shapes(proto)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_of_one_number_is_a_table_however_it_is_written(tmp_path, name):
    proto = written(FUNCTIONS[name])
    rng = np.random.default_rng(1)
    data = {"x": rng.uniform(-2, 2, (24 * 6, 16)).astype("f4")}
    made = convertkit.export(proto, "tflite", int8=True, full_integer=True, calib=data, output=tmp_path / "out")
    found = operators(made.artifact.path)
    assert "GATHER" in {each.kind for each in found}
    assert {each.precision for each in found if "QUANTIZE" not in each.kind} - {""} == {"int8"}
    x = rng.uniform(-1.9, 1.9, (6, 16)).astype("f4")
    (wanted,) = ReferenceEvaluator(proto).run(None, {"x": x})
    near = np.abs(made.run(x)["y"] - wanted)
    jumps = (
        0.51 if name in ("hardshrink", "cast to a flag") else 0.0
    )  # at 0.5, where a step of x may lie on either side
    assert np.quantile(near, 0.9) < 0.04
    assert near.max() < 0.04 + jumps


def test_a_choice_by_floats_of_another_value_is_no_function_of_one_number(tmp_path):
    proto = written("t = Add (x, slope) p = Greater (t, zero) y = Where (p, x, t)")
    data = {"x": np.random.default_rng(1).uniform(-2, 2, (24 * 6, 16)).astype("f4")}
    with pytest.raises(Unsupported, match=r"\(GREATER\): computes in float32, as t_dequantized is not quantized"):
        convertkit.export(proto, "tflite", int8=True, full_integer=True, calib=data, output=tmp_path / "out")


def test_a_constant_of_fewer_axes_stays_integers_where_axes_move(tmp_path):
    """The grid of a detector: (2, height, width) beside (1, 2, height, width)."""
    text = """<ir_version: 9, opset_import: ["" : 18]> g (float[1,3,9,9] x) => (float[1,2,9,9] y)
        { c = Conv <pads = [1,1,1,1]> (x, kernel) s = Sigmoid (c) y = Add (s, grid) }"""
    proto = parser.parse_model(text)
    stored = {"kernel": CONSTANTS["w"][:2], "grid": np.stack(np.meshgrid(np.arange(9), np.arange(9))).astype("f4")}
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in stored.items())
    rng = np.random.default_rng(1)
    data = {"x": rng.normal(size=(24, 3, 9, 9)).astype("f4")}
    made = convertkit.export(proto, "tflite", int8=True, full_integer=True, calib=data, output=tmp_path / "out")
    assert {each.kind for each in operators(made.artifact.path)} >= {"CONV_2D", "LOGISTIC", "ADD"}
    x = rng.normal(size=(1, 3, 9, 9)).astype("f4")
    (wanted,) = ReferenceEvaluator(proto).run(None, {"x": x})
    got = made.run(x)["y"]
    assert np.abs((got if got.shape == wanted.shape else got.transpose(0, 3, 1, 2)) - wanted).max() < 0.1


@pytest.mark.parametrize("other", ["zero", "x"])
def test_a_choice_by_flags_is_one_of_integers(tmp_path, other):
    text = f"""<ir_version: 9, opset_import: ["" : 18]> g (bool[6,1] keep, float[6,16] x) => (float[6,16] y)
        {{ t = Add (x, slope) y = Where (keep, t, {other}) }}"""
    proto = parser.parse_model(text)
    stored = {"slope": CONSTANTS["slope"], "zero": np.float32(0)}
    names = {"slope", other} & stored.keys()
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(stored[name]), name) for name in names)
    rng = np.random.default_rng(1)
    data = {"keep": rng.random((24 * 6, 1)) < 0.6, "x": rng.uniform(-2, 2, (24 * 6, 16)).astype("f4")}
    made = convertkit.export(proto, "tflite", int8=True, full_integer=True, calib=data, output=tmp_path / "out")
    assert "SELECT_V2" in {each.kind for each in operators(made.artifact.path)}
    feed = {"keep": rng.random((6, 1)) < 0.5, "x": rng.uniform(-1.9, 1.9, (6, 16)).astype("f4")}
    (wanted,) = ReferenceEvaluator(proto).run(None, feed)
    assert np.abs(made.run(feed)["y"] - wanted).max() < 0.04


def test_integers_that_get_another_scale_are_no_floats_in_between(tmp_path):
    """A part of scores beside boxes: the scale of a join is another one than that of the scores."""
    text = """<ir_version: 9, opset_import: ["" : 18]> g (float[1,3,9,9] x) => (float[1,2,9,9] y)
        { c = Conv <pads = [1,1,1,1]> (x, kernel) s = Sigmoid (c) a, b = Split <axis = 1, num_outputs = 2> (s)
          m = Mul (b, much) y = Concat <axis = 1> (a, m) }"""
    proto = parser.parse_model(text)
    stored = {"kernel": CONSTANTS["w"][:2], "much": np.float32(4)}
    proto.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.asarray(each), name) for name, each in stored.items()
    )
    rng = np.random.default_rng(1)
    data = {"x": rng.normal(size=(24, 3, 9, 9)).astype("f4")}
    made = convertkit.export(
        onnx.shape_inference.infer_shapes(proto),
        "tflite",
        int8=True,
        full_integer=True,
        calib=data,
        output=tmp_path / "out",
    )
    assert {each.kind for each in operators(made.artifact.path)} >= {"CONV_2D", "LOGISTIC", "CONCATENATION"}
