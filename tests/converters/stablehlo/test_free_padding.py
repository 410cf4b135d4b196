"""Convolutions whose padding follows from free sizes."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("jax")

import jax
import onnx_ir as ir
import onnxruntime as ort
from jax import export

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
