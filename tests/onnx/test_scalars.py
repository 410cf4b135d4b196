"""Limits and other scalars that are stored as one element of rank 1."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

import convertkit
from convertkit.onnx.canonical import canonicalize

_CASES = {
    "Clip": "float[1] a = {-0.5}, float[1] b = {0.5}> { y = Clip(x, a, b) }",
    "CumSum": "int64[1] a = {1}> { y = CumSum(x, a) }",
    "Pad": "int64[4] p = {0, 1, 0, 1}, float[1] a = {3}> { y = Pad(x, p, a) }",
    "Trilu": "int64[1] a = {1}> { y = Trilu(x, a) }",
    "shared": "float[1] a = {0.5}> { c = Clip(x, , a) y = Add(c, a) }",
}


def _model(name: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g (float[2,3] x) => (float[n,m] y) <{_CASES[name]}'
    )


@pytest.mark.parametrize("name", _CASES)
def test_they_are_scalars(name: str) -> None:
    model = canonicalize(ir.from_proto(_model(name)))
    operators = {"Clip": (1, 2), "CumSum": (1,), "Pad": (2,), "Trilu": (1,)}
    for node in model.graph:
        given = [node.inputs[place] for place in operators.get(node.op_type, ()) if place < len(node.inputs)]
        assert all(value is None or value.shape == ir.Shape([]) for value in given), node
    x = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    want, have = (
        ort.InferenceSession(each.SerializeToString()).run(None, {"x": x})[0]
        for each in (_model(name), ir.to_proto(model))
    )
    np.testing.assert_array_equal(have, want)


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("target", ["onnxruntime", "tflite"])
def test_limits_behind_a_convolution(target: str, int8: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    weights = onnx.numpy_helper.from_array(rng.standard_normal((4, 3, 3, 3)).astype(np.float32), "w")
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1,3,8,8] x) => (float[1,4,6,6] y) '
        "<float[1] a = {0}, float[1] b = {6}> { c = Conv(x, w) y = Clip(c, a, b) }"
    )
    proto.graph.initializer.append(weights)
    onnx.save(proto, tmp_path / "limits.onnx")
    samples = [{"x": rng.standard_normal((1, 3, 8, 8)).astype(np.float32)} for _ in range(20)]
    asked = {"int8": True, "calib": samples} if int8 else {}
    result = convertkit.export(tmp_path / "limits.onnx", target, output=tmp_path / "made", no_cache=True, **asked)
    assert result.passed
