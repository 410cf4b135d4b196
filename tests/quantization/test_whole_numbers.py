"""Whole numbers that become floats are looked up in a table of integers, for ``--full-integer``."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import parser

import convertkit
from convertkit.quantization.prepare.whole_numbers import whole_numbers_as_tables
from convertkit.recipe import ExportOptions
from convertkit.targets.tflite.inspection import operators
from convertkit.targets.tflite.profile import profile

OPTIONS = ExportOptions(source="x", precision="int8", full_integer=True)


def model(dtype: str) -> onnx.ModelProto:
    proto = parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 18]>
    g ({dtype}[4] x) => (float[4] y) {{ f = Cast <to = 1> (x) y = Sqrt (f) }}""")
    return onnx.shape_inference.infer_shapes(proto)


def after(proto: onnx.ModelProto, seen: list[list[int]], *, rows: bool = True) -> ir.Model:
    dtype = ir.from_proto(proto).graph.inputs[0].dtype.numpy()
    found = ir.from_proto(proto)
    whole_numbers_as_tables(
        found, replace(profile(OPTIONS), integer_rows=rows), [{"x": np.array(each, dtype)} for each in seen], {}
    )
    return found


def read(found: ir.Model, values: np.ndarray) -> np.ndarray:
    found.graph.outputs[:] = [next(node for node in found.graph if node.op_type == "Sqrt").inputs[0]]
    session = ort.InferenceSession(ir.to_proto(found).SerializeToString())
    return session.run(None, {"x": values})[0]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_what_calibration_saw_is_exact_and_more_is_cut_off(dtype: str) -> None:
    found = after(model(dtype), [[3, 4, 5, 6], [-2, 9, 0, 0]])
    given = np.array([-2, -7, 9, 12], dtype)
    np.testing.assert_array_equal(read(found, given), [-2, -2, 9, 9])


def test_flags_and_what_is_never_seen_otherwise() -> None:
    """A mask that was 1 in every sample is 0 on another day."""
    np.testing.assert_array_equal(read(after(model("int64"), [[1] * 4]), np.array([0, 1, 2, 1])), [0, 1, 1, 1])
    np.testing.assert_array_equal(read(after(model("bool"), [[1] * 4]), np.array([False, True] * 2)), [0, 1, 0, 1])


def test_many_numbers_and_targets_without_integer_rows_keep_the_cast() -> None:
    for found in (after(model("int64"), [[0, 0, 0, 5000]]), after(model("int64"), [[1] * 4], rows=False)):
        assert [node.op_type for node in found.graph] == ["Cast", "Sqrt"]


def test_sizes_stay_whole() -> None:
    proto = parser.parse_model("""<ir_version: 9, opset_import: ["" : 18]> g (float[1,N] x) => (float[M] y)
        { s = Shape (x) n = ReduceProd (s) f = Cast <to = 1> (n) g = Sqrt (f) h = Cast <to = 7> (g)
        y = ConstantOfShape (h) }""")
    found = ir.from_proto(onnx.shape_inference.infer_shapes(proto))
    whole_numbers_as_tables(found, profile(OPTIONS), [{"x": np.zeros((1, 4), "f4")}], {})
    assert [node.op_type for node in found.graph] == [node.op_type for node in proto.graph.node]


def test_the_file_has_integers_alone(tmp_path) -> None:
    text = """<ir_version: 9, opset_import: ["" : 18]>
    g (float[1,6,8] x, int64[1,6] m) => (float[1,8] y) { f = Cast <to = 1> (m) u = Unsqueeze (f, last)
        z = Mul (x, u) y = ReduceSum <keepdims = 0> (z, first) }"""
    proto = parser.parse_model(text)
    proto.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.array([axis]), name) for name, axis in (("last", 2), ("first", 1))
    )
    onnx.save(proto, tmp_path / "m.onnx")
    rng = np.random.default_rng(0)
    calib = {"x": rng.normal(size=(48, 6, 8)).astype("f4"), "m": rng.integers(0, 2, (48, 6))}
    choices = {"int8": True, "full_integer": True, "calib": calib, "output": tmp_path / "out"}
    result = convertkit.export(tmp_path / "m.onnx", "tflite", **choices)
    assert result.report["quality"]["snr_db"] > 30
    whole = {"int8", "int64", "int32", ""}
    assert {each.precision for each in operators(result.artifact.path) if "QUANTIZE" not in each.kind} <= whole
