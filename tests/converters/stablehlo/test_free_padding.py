"""Convolutions whose padding follows from dynamic sizes."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("jax")

import jax
import onnx_ir as ir
import onnxruntime as ort
from jax import export

from convertkit.converters.jax.service import JaxService
from convertkit.converters.stablehlo.importer import to_onnx
from convertkit.onnx.canonical import canonicalize


def test_same_padding_of_free_sizes():
    """A stride of two pads odd and even sizes differently, and height and width on their own."""
    kernel = np.random.default_rng(0).standard_normal((3, 3, 2, 4)).astype("f")

    def convolve(x):
        return jax.lax.conv_general_dilated(x, kernel, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    n, h, w = export.symbolic_shape("n, h, w")
    program = export.export(jax.jit(convolve), platforms=["cpu"])(jax.ShapeDtypeStruct((n, h, w, 2), np.float32))
    dims = {(0, 0): "n", (0, 1): "h", (0, 2): "w"}
    model = canonicalize(to_onnx(program.mlir_module_serialized, input_names=["x"], output_names=["y"], dims=dims))
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString())
    for shape in ((1, 8, 7, 2), (2, 9, 12, 2)):
        x = np.random.default_rng(1).standard_normal(shape).astype("f")
        (got,) = session.run(None, {"x": x})
        np.testing.assert_allclose(got, np.asarray(convolve(x)), atol=1e-5)


def halved(x):
    """A net of images of any size: windows that pad as TensorFlow does, one behind the other."""
    kernel = np.random.default_rng(0).standard_normal((3, 3, 2, 4)).astype("f")
    x = jax.lax.conv_general_dilated(x, kernel, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    x = jax.nn.relu(x + np.arange(4, dtype="f"))
    x = jax.lax.reduce_window(x, -np.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    total = jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, 2, 3, 1), (1, 2, 2, 1), "SAME")
    ones = jax.numpy.ones((1, x.shape[1], x.shape[2], 1), x.dtype)
    return total / jax.lax.reduce_window(ones, 0.0, jax.lax.add, (1, 2, 3, 1), (1, 2, 2, 1), "SAME")


def otherwise(x):
    """Padding whose odd element goes in front, and a sum that nothing divides."""
    kernel = np.random.default_rng(0).standard_normal((3, 2, 2, 4)).astype("f")
    y = jax.lax.conv_general_dilated(x, kernel, (2, 2), "SAME_LOWER", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return y, jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")


@pytest.mark.parametrize(("net", "operators"), [
    (halved, {"Conv", "Add", "Relu", "MaxPool", "AveragePool", "Transpose"}), (otherwise, None),
])  # fmt: skip
def test_windows_of_dynamic_padding(net, operators):
    n, h, w = export.symbolic_shape("n, h, w")
    program = export.export(jax.jit(net), platforms=["cpu"])(jax.ShapeDtypeStruct((n, h, w, 2), np.float32))
    model = canonicalize(to_onnx(program.mlir_module_serialized, dims={(0, 0): "n", (0, 1): "h", (0, 2): "w"}))
    if operators:
        assert {node.op_type for node in model.graph} <= operators
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString())
    for shape in ((1, 8, 7, 2), (2, 9, 12, 2), (1, 33, 18, 2), (1, 3, 30, 2)):
        x = np.random.default_rng(1).standard_normal(shape).astype("f")
        got = session.run(None, {session.get_inputs()[0].name: x})
        for have, want in zip(got, jax.tree.leaves(net(x))):
            np.testing.assert_allclose(have, np.asarray(want), atol=1e-5)


SPREAD = """
module {
  func.func public @main(%x: tensor<1x?x2xf32>, %k: tensor<3x2x4xf32>) -> tensor<1x?x4xf32> {
    %size = stablehlo.get_dimension_size %x, dim = 1 : (tensor<1x?x2xf32>) -> tensor<i32>
    %three = stablehlo.constant dense<3> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<1x1xi32>
    %rest = stablehlo.remainder %size, %three : tensor<i32>
    %high = stablehlo.reshape %rest : (tensor<i32>) -> tensor<1x1xi32>
    %padding = stablehlo.concatenate %one, %high, dim = 1 : (tensor<1x1xi32>, tensor<1x1xi32>) -> tensor<1x2xi32>
    %y = "stablehlo.dynamic_conv"(%x, %k, %padding) {
      dimension_numbers = #stablehlo.conv<[b, 0, f]x[0, i, o]->[b, 0, f]>,
      lhs_dilation = array<i64: 3>, window_strides = array<i64: 2>,
      feature_group_count = 1 : i64, batch_group_count = 1 : i64
    } : (tensor<1x?x2xf32>, tensor<3x2x4xf32>, tensor<1x2xi32>) -> tensor<1x?x4xf32>
    return %y : tensor<1x?x4xf32>
  }
}
"""


def test_a_spread_input_whose_padding_follows_from_its_size():
    session = ort.InferenceSession(ir.to_proto(canonicalize(to_onnx(SPREAD))).SerializeToString())
    rng = np.random.default_rng(0)
    for size in (4, 5, 6):
        x, kernel = rng.standard_normal((1, size, 2)).astype("f"), rng.standard_normal((3, 2, 4)).astype("f")
        (got,) = session.run(None, {each.name: value for each, value in zip(session.get_inputs(), (x, kernel))})
        want = jax.lax.conv_general_dilated(x, kernel, (2,), [(1, size % 3)], (3,), None, ("NWC", "WIO", "NWC"))
        np.testing.assert_allclose(got, np.asarray(want), atol=1e-5)


def test_sizes_that_are_fixed_are_read_as_such(tmp_path):
    """``--static`` names a part of a formula; what needs no dynamic sizes is then read without any."""
    h = export.symbolic_shape("h")[0]
    program = export.export(jax.jit(lambda x: x.reshape(2, -1) * 2), platforms=["cpu"])(
        jax.ShapeDtypeStruct((16 * h, 3), np.float32)
    )
    source = tmp_path / "program.jax"
    source.write_bytes(program.serialize())
    service = JaxService()
    service.open({"source": str(source), "kind": "jax-export", "inputs": []}, {})
    path = tmp_path / "model.onnx"
    told = service.convert({"path": str(path), "sizes": {"h": 4}, "made_by": ""}, {}).value
    assert [each[1] for side in ("inputs", "outputs") for each in told[side]] == [[64, 3], [2, 96]]
    assert {node.op_type for node in ir.load(path).graph} == {"Reshape", "Mul"}
