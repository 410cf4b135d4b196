"""What has no integer kernel is written in operators that have one, with ``--full-integer``."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser
from onnx.reference import ReferenceEvaluator

import convertkit
from convertkit.errors import FeedError, Unsupported
from convertkit.targets.tflite.inspection import operators

RNG = np.random.default_rng(3)
STORED = {
    "vector": np.linspace(0.5, 3, 16, dtype="f4"),
    "matrix": RNG.normal(size=(8, 16)).astype("f4") / 4,
    "table": RNG.normal(size=(9, 16)).astype("f4"),
    "last": np.array([1]),
    "zero": np.float32(0),
    "one": np.float32(1),
    "nan": np.float32("nan"),
    "three": np.array([2, 3, 16]),
    "none": np.int64(0),
    "most": np.int64(8),
    "w": RNG.normal(size=(1, 4 * 5, 8)).astype("f4") / 2,
    "r": RNG.normal(size=(1, 4 * 5, 5)).astype("f4") / 2,
    "wg": RNG.normal(size=(1, 3 * 5, 8)).astype("f4") / 2,
    "rg": RNG.normal(size=(1, 3 * 5, 5)).astype("f4") / 2,
    "states": np.array([1]),
    "five": np.array([5]),
}
ROWS = {
    "a division by a vector": ("float[N,16] x", "y = Div (x, vector)", "MUL", 0.04),
    "a division by a value": ("float[N,16] x", "a = Abs (x) d = Add (a, vector) y = Div (x, d)", "GATHER", 0.04),
    "an Einsum": ("float[N,16] x", 'y = Einsum <equation = "bi,oi->bo"> (x, matrix)', "FULLY_CONNECTED", 0.06),
    "a stored matrix from the left": (
        "float[N,16] x",
        "u = Unsqueeze (x, end) m = MatMul (rows, u) y = Squeeze (m, end)",
        "BATCH_MATMUL",
        0.06,
    ),
    "a mask that chooses": (
        "float[N,16] x",
        "m = Mul (x, vector) k = Where (keep, m, infinity) y = Softmax (k)",
        "SOFTMAX",
        0.02,
    ),
    "a mask that is added": ("float[N,16] x", "m = Mul (x, vector) k = Add (m, mask) y = Softmax (k)", "SOFTMAX", 0.02),
    "the last place": ("float[N,16] x", "m = Mul (x, vector) y = Gather <axis = 1> (m, behind)", "STRIDED_SLICE", 0.06),
    "a place of an unknown number": (
        "float[N,16] x",
        "m = Mul (x, vector) y = Gather (m, none)",
        "STRIDED_SLICE",
        0.06,
    ),
    "places in two axes": (
        "float[N,16] x",
        "m = Mul (x, vector) y = Gather <axis = 1> (m, square)",
        "STRIDED_SLICE",
        0.06,
    ),
    "the last of an unknown number": ("float[N,16] x", "m = Mul (x, vector) y = Gather (m, behind)", "GATHER", 0.06),
    "a division by a number": ("float[N,16] x", "m = Mul (x, vector) y = Div (m, seventh)", "MUL", 0.02),
    "a norm": ("float[N,16] x", "y = ReduceL2 (x, last)", "SUM", 0.15),
    "a Sum": ("float[N,16] x", "m = Mul (x, vector) y = Sum (vector, x, m)", "ADD", 0.15),
    "a normalization": ("float[N,16] x", "y = LpNormalization <axis = 1> (x)", "SUM", 0.04),
    "a table": ("int64[N,3] i", "y = Gather (table, i)", "GATHER", 0.03),
    "NaN outside of a table": (
        "int64[N,3] i",
        "a = GreaterOrEqual (i, none) b = LessOrEqual (i, most) c = And (a, b) u = Unsqueeze (c, end) "
        "n = Max (i, none) p = Min (n, most) g = Gather (table, p) y = Where (u, g, nan)",
        "GATHER",
        0.03,
    ),
    "zeros as many as the batch": (
        "float[N,16] x",
        "s = Shape <start = 0, end = 1> (x) t = Concat <axis = 0> (s, rest) z = Expand (zero, t) "
        "y = Concat <axis = 1> (z, x)",
        "CONCATENATION",
        0.03,
    ),
    "LSTM": ("float[4,N,8] x", "y, h, c = LSTM <hidden_size = 5> (x, w, r)", "FULLY_CONNECTED", 0.04),
    "LSTM from zeros as many as the batch": (
        "float[4,N,8] x",
        "s = Shape <start = 1, end = 2> (x) t = Concat <axis = 0> (states, s, five) z = ConstantOfShape (t) "
        'y, h, c = LSTM <hidden_size = 5> (x, w, r, "", "", z, z)',
        "FULLY_CONNECTED",
        0.04,
    ),
    "GRU": (
        "float[4,N,8] x",
        "y = GRU <hidden_size = 5, linear_before_reset = 1> (x, wg, rg)",
        "FULLY_CONNECTED",
        0.08,
    ),
}
_ENLARGING = np.repeat(np.eye(4, dtype="f4"), 2, 0) * 0.75 + np.repeat(np.eye(4, k=1, dtype="f4"), 2, 0) * 0.25
STORED |= {
    "left": _ENLARGING,
    "right": _ENLARGING.T.copy(),
    "flat": np.array([4, -1]),
    "whole": np.array([8, -1, 4, 3]),
}
UNGATHERED = ("SLICE", "MUL", "FULLY_CONNECTED")
STORED |= {"behind": np.int64(-1), "square": np.array([[3]]), "seventh": np.float32(7)}
STORED |= {"keep": np.arange(16) % 3 > 0, "infinity": np.float32("-inf")}
STORED |= {"mask": np.where(np.arange(16) % 3 > 0, 0, -1e9).astype("f4")}
STORED |= {"kernel": RNG.normal(size=(2, 3, 3, 3)).astype("f4") / 5}
STORED |= {"rows": STORED["matrix"], "end": np.array([2]), "rest": np.array([4])}


def model(inputs, lines):
    text = f'<ir_version: 9, opset_import: ["" : 18]> g ({inputs}) => (float y) {{ {lines} }}'
    proto = parser.parse_model(text)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    used = {name for node in proto.graph.node for name in node.input}
    proto.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(value), name) for name, value in STORED.items() if name in used
    )
    return onnx.shape_inference.infer_shapes(proto)


def drawn(inputs, batch, rng):
    """Values for the one input, whose batch may lie behind its steps."""
    if inputs.startswith("int64"):
        return rng.integers(0, 9, (batch, 3))
    return rng.uniform(-2, 2, (4, batch, 8) if "4,N" in inputs else (batch, 16)).astype("f4")


@pytest.mark.parametrize("name", ROWS)
def test_it_is_computed_in_integers(tmp_path, name):
    inputs, lines, kernel, near = ROWS[name]
    proto, rng = model(inputs, lines), np.random.default_rng(1)
    key = inputs.split()[-1]
    data = [{key: drawn(inputs, 1, rng)} for _ in range(40)]
    made = convertkit.export(proto, "tflite", int8=True, full_integer=True, calib=lambda: data, output=tmp_path / "out")
    found = operators(made.artifact.path)
    assert kernel in {each.kind for each in found}
    assert "float32" not in {each.precision for each in found if "QUANTIZE" not in each.kind}
    assert kernel not in UNGATHERED or "GATHER" not in {each.kind for each in found}
    feed = drawn(inputs, 3, rng)
    (wanted,) = ReferenceEvaluator(proto).run(None, {key: feed})
    assert np.abs(made.run(feed)["y"] - wanted).max() < near


def test_an_image_that_is_resized_by_two_products_stays_integers(tmp_path):
    """As Keras enlarges with ``bilinear``: the layout puts a transpose in front of what is rounded."""
    proto = model(
        "float[N,4,4,3] x",
        "t = Transpose <perm = [1,0,2,3]> (x) a = Reshape (t, flat) b = MatMul (left, a) c = Reshape (b, whole) "
        "d = Transpose <perm = [1,3,0,2]> (c) e = MatMul (d, right) f = Conv <pads = [1,1,1,1]> (e, kernel) "
        "y = Transpose <perm = [0,2,3,1]> (f)",
    )
    rng = np.random.default_rng(1)
    data = {"x": rng.uniform(-1, 1, (40, 4, 4, 3)).astype("f4")}
    made = convertkit.export(proto, "tflite", int8=True, full_integer=True, calib=data, output=tmp_path / "out")
    assert "float32" not in {each.precision for each in operators(made.artifact.path) if "QUANTIZE" not in each.kind}
    x = rng.uniform(-1, 1, (3, 4, 4, 3)).astype("f4")
    (wanted,) = ReferenceEvaluator(proto).run(None, {"x": x})
    assert np.abs(made.run(x)["y"] - wanted).max() < 0.05


def test_a_table_that_is_nan_outside_is_told(tmp_path):
    inputs, lines, *_ = ROWS["NaN outside of a table"]
    data = {"i": np.random.default_rng(1).integers(0, 9, (40, 3))}
    made = convertkit.export(
        model(inputs, lines), "tflite", int8=True, full_integer=True, calib=data, output=tmp_path / "out"
    )
    assert "places outside of a table give NaN in the source" in (tmp_path / "out" / "report.json").read_text()
    assert made.run(np.array([[0, 8, 3]]))["y"].shape == (1, 3, 16)


def test_a_choice_by_floats_keeps_its_nan(tmp_path):
    proto = model("float[N,16] x", "p = Greater (x, zero) y = Where (p, x, nan)")
    data = {"x": np.random.default_rng(1).uniform(-2, 2, (40, 16)).astype("f4")}
    with pytest.raises(FeedError, match="to NaN"):
        convertkit.export(proto, "tflite", int8=True, full_integer=True, calib=data, output=tmp_path / "out")


def test_a_layer_that_is_not_written_out_is_refused_with_the_way_to_floats(tmp_path):
    proto = model("float[4,N,8] x", "y, h, c = LSTM <hidden_size = 5, clip = 1.0> (x, w, r)")
    data = [{"x": np.random.default_rng(1).normal(size=(4, 1, 8)).astype("f4")} for _ in range(3)]
    with pytest.raises(Unsupported, match="clip") as refusal:
        convertkit.export(proto, "tflite", int8=True, full_integer=True, calib=lambda: data, output=tmp_path / "out")
    assert "--int8 without --full-integer" in refusal.value.ways_out
