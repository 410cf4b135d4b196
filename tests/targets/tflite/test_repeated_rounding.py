"""A transpose between equal pairs vanishes with the layout, and one of the pairs with it; others round again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from convertkit.onnx.load import load_model
from convertkit.targets.tflite.compile import compile_model
from convertkit.targets.tflite.passes import Options


@pytest.mark.parametrize(("scale", "pairs"), [(0.05, 2), (0.06, 4)])
def test_once_is_enough(tmp_path: Path, scale: float, pairs: int) -> None:
    """Pool in float, rounded, moved to channels last, rounded again, LayerNormalization in float."""
    numbers = {"one": (0.05, 3), "two": (scale, 3)}
    stored = [numpy_helper.from_array(np.ones(8, np.float32), "ones")]
    for name, (step, zero) in numbers.items():
        stored += [
            numpy_helper.from_array(np.array(step, np.float32), f"{name}_s"),
            numpy_helper.from_array(np.array(zero, np.int8), f"{name}_z"),
        ]
    nodes = [helper.make_node("GlobalAveragePool", ["x"], ["p"]), helper.make_node("Mul", ["x", "p"], ["m"])]
    moved = "m"
    for number, pair in enumerate(("one", "two")):
        ends = [f"{pair}_s", f"{pair}_z"]
        nodes.append(helper.make_node("QuantizeLinear", [moved, *ends], [f"q{number}"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"q{number}", *ends], [f"d{number}"]))
        moved = f"d{number}"
        if pair == "one":
            nodes.append(helper.make_node("Transpose", [moved], ["t"], perm=[0, 2, 3, 1]))
            moved = "t"
    nodes.append(helper.make_node("LayerNormalization", [moved, "ones"], ["y"], axis=-1))
    shapes = {"x": [1, 8, 6, 5], "y": [1, 6, 5, 8]}
    values = [helper.make_tensor_value_info(name, 1, shape) for name, shape in shapes.items()]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(onnx.shape_inference.infer_shapes(model), tmp_path / "m.onnx")
    compiled = compile_model(load_model(tmp_path / "m.onnx"), Options(input_layout="nchw"))
    codes = [operation.code for operation in compiled.program.subgraphs[0].operations]
    assert codes.count("QUANTIZE") + codes.count("DEQUANTIZE") == pairs
    compiled.write(tmp_path / "m.tflite")

    import onnxruntime
    from ai_edge_litert.interpreter import Interpreter

    x = np.random.default_rng(0).standard_normal(shapes["x"]).astype(np.float32)
    wanted = onnxruntime.InferenceSession(str(tmp_path / "m.onnx")).run(None, {"x": x})[0]
    runner = Interpreter(str(tmp_path / "m.tflite")).get_signature_runner()
    assert np.abs(runner(x=x)["y"] - wanted).max() <= 0.1


@pytest.mark.parametrize(("parts", "zero", "floats"), [(256, 0, 0), (256, 1, 1), (250, 0, 1)])
def test_bytes_without_sign_are_moved_ones(tmp_path: Path, parts: int, zero: int, floats: int) -> None:
    """As files end whose outputs are uint8: no float stands between, where the reals are the same."""
    numbers = {"one": np.array(0.05, np.float32), "three": np.array(3, np.int8), "part": np.array(1 / 256, np.float32),
               "low": np.array(-128, np.int8), "two": np.array(1 / parts, np.float32),
               "point": np.array(zero, np.uint8)}  # fmt: skip
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "one", "three"], ["d"]),
        helper.make_node("Sigmoid", ["d"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "part", "low"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "part", "low"], ["e"]),
        helper.make_node("QuantizeLinear", ["e", "two", "point"], ["y"]),
    ]
    values = [helper.make_tensor_value_info("x", onnx.TensorProto.INT8, [2, 300]),
              helper.make_tensor_value_info("y", onnx.TensorProto.UINT8, [2, 300])]  # fmt: skip
    stored = [numpy_helper.from_array(value, name) for name, value in numbers.items()]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(onnx.shape_inference.infer_shapes(model), tmp_path / "m.onnx")
    compiled = compile_model(load_model(tmp_path / "m.onnx"), Options())
    codes = [operation.code for operation in compiled.program.subgraphs[0].operations]
    assert (codes[0], codes.count("DEQUANTIZE"), codes[-1]) == ("LOGISTIC", floats, "QUANTIZE")
    compiled.write(tmp_path / "m.tflite")

    import onnxruntime
    from ai_edge_litert.interpreter import Interpreter

    x = np.resize(np.arange(-128, 128), (2, 300)).astype(np.int8)
    wanted = onnxruntime.InferenceSession(str(tmp_path / "m.onnx")).run(None, {"x": x})[0]
    got = Interpreter(str(tmp_path / "m.tflite")).get_signature_runner()(x=x)["y"]
    assert np.abs(got.astype(int) - wanted).max() <= 1
