"""Depthwise windows of more than 25 taps are split into ones with fast kernels, with the same numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from convertkit.onnx.load import load_model
from convertkit.targets.tflite.compile import compile_model
from convertkit.targets.tflite.passes import Options


def depthwise(size: int, strides: list[int], *, stored: bool = False) -> onnx.ModelProto:
    """A depthwise convolution and a Relu; ``stored``: its weights are int8 with a scale for each channel."""
    rng = np.random.default_rng(0)
    real = rng.standard_normal((6, 1, size, size)).astype(np.float32)
    constants = [numpy_helper.from_array(rng.standard_normal(6).astype(np.float32), "b")]
    nodes = []
    if stored:
        integers, scales = rng.integers(-127, 128, real.shape).astype(np.int8), np.arange(1, 7, dtype=np.float32) / 99
        constants += [numpy_helper.from_array(integers, "integers"), numpy_helper.from_array(scales, "scales")]
        nodes.append(helper.make_node("DequantizeLinear", ["integers", "scales"], ["w"], axis=0))
    else:
        constants.append(numpy_helper.from_array(real, "w"))
    nodes.append(helper.make_node("Conv", ["x", "w", "b"], ["c"], group=6, pads=[size // 2] * 4, strides=strides))
    nodes.append(helper.make_node("Relu", ["c"], ["y"]))
    image = [helper.make_tensor_value_info("x", 1, ["N", 6, 13, 9])]
    result = [helper.make_tensor_value_info("y", 1, None)]
    graph = helper.make_graph(nodes, "g", image, result, constants)
    return onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]))


@pytest.mark.parametrize(
    ("size", "strides", "convolutions"),
    [(5, [1, 1], 1), (7, [1, 1], 3), (9, [1, 1], 5), (11, [1, 1], 7), (13, [1, 1], 1), (7, [2, 2], 1)],
)
def test_split_and_equal(tmp_path: Path, size: int, strides: list[int], convolutions: int) -> None:
    _split_and_equal(tmp_path, depthwise(size, strides), convolutions)


def test_stored_weights_stay_integers(tmp_path: Path) -> None:
    """Every piece has a DEQUANTIZE of its own, which runtimes compute when they load the model."""
    codes = _split_and_equal(tmp_path, depthwise(7, [1, 1], stored=True), 3)
    assert codes.count("DEQUANTIZE") == 3


def _split_and_equal(tmp_path: Path, model: onnx.ModelProto, convolutions: int) -> list[str]:
    import onnxruntime
    from ai_edge_litert.interpreter import Interpreter

    model.ir_version = 10
    onnx.save(model, tmp_path / "m.onnx")
    compiled = compile_model(load_model(tmp_path / "m.onnx"), Options())
    codes = [operation.code for operation in compiled.program.subgraphs[0].operations]
    assert codes.count("DEPTHWISE_CONV_2D") == convolutions
    compiled.write(tmp_path / "m.tflite")
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    runner = Interpreter(str(tmp_path / "m.tflite")).get_signature_runner()
    for batch in (1, 3):
        x = np.random.default_rng(batch).standard_normal((batch, 6, 13, 9)).astype(np.float32)
        wanted = session.run(None, {"x": x})[0]
        found = runner(x=x.transpose(0, 2, 3, 1))["y"]
        if found.shape != wanted.shape:
            found = found.transpose(0, 3, 1, 2)
        assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()
    return codes
