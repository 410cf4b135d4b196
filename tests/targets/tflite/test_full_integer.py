"""One operator through ``--full-integer``: its kernel in the file, and no other arithmetic than integers."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser

import convertkit
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
    "InstanceNormalization (x, scale, scale)": ("[1,3,9,9]", "", "MEAN", BYTES),
    "Softmax (x)": ("[6,16]", "", "SOFTMAX", BOTH),
    "Conv (x, w)": ("[1,3,9,9]", "", "CONV_2D", BOTH),
}
CONSTANTS = {
    "slope": np.linspace(0.1, 0.4, 16, dtype="f4"),
    "scale": np.array([0.5, 1, 2], "f4"),
    "last": np.array([1], np.int64),
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
    proto = model(call.removesuffix(" batches"), x, z)
    onnx.save(proto, tmp_path / "m.onnx")
    rng = np.random.default_rng(1)
    shapes = {each.name: [dim.dim_value for dim in each.type.tensor_type.shape.dim] for each in proto.graph.input}
    data = {name: rng.normal(size=(24 * first, *rest)).astype("f4") for name, (first, *rest) in shapes.items()}
    choices = {precision: True, "full_integer": True, "calib": data, "output": tmp_path / "out"}
    found = operators(convertkit.export(tmp_path / "m.onnx", "tflite", **choices).artifact.path)
    assert kernel in {each.kind for each in found}
    computed = {each.precision for each in found if "QUANTIZE" not in each.kind}
    assert computed - {""} == {precision}  # places in a table stand for themselves
