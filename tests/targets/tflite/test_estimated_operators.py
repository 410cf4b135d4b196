"""What cost tables make of single operators."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.costs.estimate import estimates
from convertkit.targets.tflite.graph import Program
from convertkit.targets.tflite.tensor import Tensor
from convertkit.targets.tflite.writer import Signature, write_model
from tests.targets.tflite.compiled import compiled


def test_a_shape_is_estimated(tmp_path: Path) -> None:
    """What asks a tensor for its sizes reads none of its numbers."""
    case = compiled("""<ir_version: 8, opset_import: ["" : 21]> g (float[n,m,6] x) => (float[k] y)
        <int64[1] one = {-1}> { r = Relu(x)  s = Shape<end=1>(r)  t = Concat<axis=0>(one, s)  u = Reshape(r, t)
        v = Transpose(u)  y = Reshape(v, one) }""")
    assert case.operators["SHAPE"] == 1
    case.compiled.write(tmp_path / "m.tflite")
    (found,) = estimates(tmp_path / "m.tflite", ["arm64-a76"])
    assert {node.ms for node in found.nodes if node.kind == "SHAPE"} == {0.0}
    assert found.ms > 0


def written(path: Path, shape: tuple[int, ...], step: Callable[[Builder, Tensor], Tensor]) -> Path:
    """A file of one operator between floats."""
    program = Program()
    subgraph = program.subgraphs[program.new_subgraph("main")]
    x = Tensor("x", shape, "float32")
    subgraph.inputs = [x]
    y = step(Builder(program, subgraph), x)
    subgraph.outputs = [y]
    write_model(program, Signature({"x": x}, {"y": y}), path, metadata={}, description="")
    return path


def ms(path: Path) -> float:
    return estimates(path, ["arm64-a76"])[0].ms


def test_a_depthwise_convolution_of_one_channel_is_a_convolution(tmp_path: Path) -> None:
    """XNNPACK runs it by the same kernel; of several channels it has another one, which is slower here."""
    weight = np.random.default_rng(0).normal(size=(8, 10, 8, 1)).astype(np.float32)

    def convolution(b: Builder, x: Tensor) -> Tensor:
        return b.conv_2d(x, b.constant(weight), b.constant(np.zeros(8, np.float32)), strides=(2, 2), padding="SAME")

    def depthwise(b: Builder, x: Tensor) -> Tensor:
        turned = np.ascontiguousarray(np.tile(weight.transpose(3, 1, 2, 0), (1, 1, 1, x.shape[3])))
        zeros = np.zeros(8 * x.shape[3], np.float32)
        return b.depthwise_conv_2d(x, b.constant(turned), b.constant(zeros), strides=(2, 2), padding="SAME")

    plain = ms(written(tmp_path / "plain.tflite", (1, 49, 40, 1), convolution))
    assert ms(written(tmp_path / "one.tflite", (1, 49, 40, 1), depthwise)) == pytest.approx(plain, rel=1e-9)
    assert ms(written(tmp_path / "two.tflite", (1, 49, 40, 2), depthwise)) > 2 * plain
