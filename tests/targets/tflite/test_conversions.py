"""Bytes of one scale as bytes of another: what a float makes of them, whichever kernel converts."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import parser

import convertkit
from convertkit.targets.tflite.builder.conversions import are_bytes_equal
from convertkit.targets.tflite.inspection import operators
from convertkit.targets.tflite.tensor import QuantParams

BY_FLOATS = ["TRANSPOSE", "DEQUANTIZE", "QUANTIZE"]
CASES = {
    "a ratio that is no 256th": (0.03917702, -4, 0.052871298, -1, BY_FLOATS),
    "one that nearly is": (0.05, 3, 0.0731, -7, BY_FLOATS),
    "191 256ths": (191 / 4096, -4, 256 / 4096, -1, ["TRANSPOSE", "QUANTIZE"]),
}


def model(before: float, first: int, after: float, second: int) -> onnx.ModelProto:
    return parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 18]> g (int8[1,2,128] x) => (int8[1,128,2] y)
    <float a = {{{before:.9g}}}, int8 b = {{{first}}}, float c = {{{after:.9g}}}, int8 d = {{{second}}}> {{
        r = DequantizeLinear (x, a, b) t = Transpose <perm = [0,2,1]> (r) y = QuantizeLinear (t, c, d) }}""")


@pytest.mark.parametrize("case", CASES)
def test_every_byte_is_what_floats_make_of_it(tmp_path, case: str) -> None:
    before, first, after, second, kinds = CASES[case]
    proto = model(before, first, after, second)
    onnx.save(proto, tmp_path / "m.onnx")
    made = convertkit.export(tmp_path / "m.onnx", "tflite", output=tmp_path / "out")
    assert [each.kind for each in operators(made.artifact.path)] == kinds
    x = np.arange(-128, 128).astype(np.int8).reshape(1, 2, 128)
    (wanted,) = ort.InferenceSession(proto.SerializeToString()).run(None, {"x": x})
    np.testing.assert_array_equal(made.run({"x": x})["y"], wanted)


def test_a_clamp_that_a_range_expresses(tmp_path) -> None:
    """Of a model that came quantized."""
    proto = parser.parse_model("""<ir_version: 9, opset_import: ["" : 18]> g (int8[256] x) => (int8[256] y)
    <float a = {0.03917702}, int8 b = {-4}, float c = {0.0231}, int8 d = {-128}> {
        r = DequantizeLinear (x, a, b) t = Relu (r) y = QuantizeLinear (t, c, d) }""")
    onnx.save(proto, tmp_path / "m.onnx")
    x = np.arange(-128, 128).astype(np.int8)
    (wanted,) = ort.InferenceSession(proto.SerializeToString()).run(None, {"x": x})
    made = convertkit.export(tmp_path / "m.onnx", "tflite", output=tmp_path / "out")
    np.testing.assert_array_equal(made.run({"x": x})["y"], wanted)


@pytest.mark.parametrize("case", CASES)
def test_bytes_that_the_direct_kernel_gives(case: str) -> None:
    before, first, after, second, kinds = CASES[case]
    given, wanted = QuantParams.per_tensor(before, first), QuantParams.per_tensor(after, second)
    assert are_bytes_equal(given, wanted) is (kinds is not BY_FLOATS)
