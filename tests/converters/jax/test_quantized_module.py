"""A quantized StableHLO network through the worker: XLA executes StableHLO's own expansion of it, ONNX Runtime QDQ."""

import numpy as np
import pytest

pytest.importorskip("jax")

from convertkit.converters.stablehlo import converter
from convertkit.onnx.runner import OnnxRunner
from convertkit.progress import Silent
from convertkit.recipe import ExportOptions

rng = np.random.default_rng(3)
IN = "!quant.uniform<i8:f32, 0.02:-3>"
WEIGHTS = "!quant.uniform<i8<-127:127>:f32:3, {0.004,0.007,0.002,0.009}>"
SUMS = "!quant.uniform<i32:f32:3, {0.00008,0.00014,0.00004,0.00018}>"
BIAS = SUMS.replace("f32:3", "f32:0")
HIDDEN = "!quant.uniform<i8:f32, 0.03:-128>"
DENSE = "!quant.uniform<i8:f32, 0.008>"
OUT = "!quant.uniform<i8:f32, 0.1:7>"


def dense(shape: tuple[int, ...], bound: int) -> str:
    return f"dense<{rng.integers(-bound, bound + 1, shape).tolist()}>"


def network() -> str:
    """A convolution with a 32-bit bias and no negative results, then a dense layer."""
    return f"""
func.func @main(%x: tensor<2x8x8x3x{IN}>) -> (tensor<2x4x4x5x{OUT}>, tensor<2x4x4x5xf32>) {{
  %w = stablehlo.constant() {{value = {dense((3, 3, 3, 4), 127)} : tensor<3x3x3x4xi8>}}
    : () -> tensor<3x3x3x4x{WEIGHTS}>
  %b = stablehlo.constant() {{value = {dense((4,), 3000)} : tensor<4xi32>}} : () -> tensor<4x{BIAS}>
  %d = stablehlo.constant() {{value = {dense((4, 5), 127)} : tensor<4x5xi8>}} : () -> tensor<4x5x{DENSE}>
  %c = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {{stride = [2, 2], pad = [[0, 1], [0, 1]]}}
    {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}
    : (tensor<2x8x8x3x{IN}>, tensor<3x3x3x4x{WEIGHTS}>) -> tensor<2x4x4x4x{SUMS}>
  %s = stablehlo.broadcast_in_dim %b, dims = [3] : (tensor<4x{BIAS}>) -> tensor<2x4x4x4x{SUMS}>
  %a = stablehlo.add %c, %s : tensor<2x4x4x4x{SUMS}>
  %h = stablehlo.uniform_quantize %a : (tensor<2x4x4x4x{SUMS}>) -> tensor<2x4x4x4x{HIDDEN}>
  %y = stablehlo.dot_general %h, %d, contracting_dims = [3] x [0]
    : (tensor<2x4x4x4x{HIDDEN}>, tensor<4x5x{DENSE}>) -> tensor<2x4x4x5x{OUT}>
  %f = stablehlo.uniform_dequantize %y : (tensor<2x4x4x5x{OUT}>) -> tensor<2x4x4x5xf32>
  return %y, %f : tensor<2x4x4x5x{OUT}>, tensor<2x4x4x5xf32>
}}
"""


def test_network(tmp_path):
    path = tmp_path / "network.mlir"
    path.write_text(network())
    with converter.open(str(path), ExportOptions(str(path)), tmp_path, Silent()) as source:
        assert source.artifact.inputs[0].value_range == (-128, 128)
        assert [each.dtype for each in source.artifact.outputs] == ["int8", "float32"]
        assert any("StableHLO's own passes expand" in note for note in source.notes)
        assert source.stage().tolerance.lsb == 1
        artifact = source.stage().run(source.artifact, tmp_path)
        assert [each.lsb for each in artifact.outputs] == [1.0, pytest.approx(0.1)]
        feed = {"x0": rng.integers(-128, 128, (2, 8, 8, 3)).astype(np.int8)}
        with source.runner() as before, OnnxRunner(artifact) as after:
            want, got = before.run(feed), after.run(feed)
    integers, reals = (np.abs(want[name].astype(float) - got[name]) for name in want)
    assert integers.max() <= 1
    assert np.mean(integers > 0) <= 0.01  # ties alone
    np.testing.assert_allclose(reals, 0.1 * integers, atol=1e-5)
    assert len(np.unique(got["y0"])) > 20


FREE = f"""
func.func @main(%x: tensor<?x8xf32>) -> tensor<?x5x{OUT}> {{
  %w = stablehlo.constant() {{value = {dense((8, 5), 127)} : tensor<8x5xi8>}} : () -> tensor<8x5x{DENSE}>
  %q = stablehlo.uniform_quantize %x : (tensor<?x8xf32>) -> tensor<?x8x{IN}>
  %y = stablehlo.dot_general %q, %w, contracting_dims = [1] x [0]
    : (tensor<?x8x{IN}>, tensor<8x5x{DENSE}>) -> tensor<?x5x{OUT}>
  return %y : tensor<?x5x{OUT}>
}}
"""


def test_free_batch(tmp_path):
    path = tmp_path / "free.mlir"
    path.write_text(FREE)
    with converter.open(str(path), ExportOptions(str(path)), tmp_path, Silent()) as source:
        artifact = source.stage().run(source.artifact, tmp_path)
        feed = {"x0": rng.standard_normal((7, 8)).astype(np.float32)}
        with source.runner() as before, OnnxRunner(artifact) as after:
            want, got = before.run(feed)["y0"], after.run(feed)["y0"]
    assert np.abs(want.astype(int) - got).max() <= 1
    assert np.mean(want != got) <= 0.03  # at most one tie
    assert len(np.unique(got)) > 10
