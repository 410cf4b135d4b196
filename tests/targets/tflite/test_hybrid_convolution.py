"""Integer weights of a plain convolution reach its kernel; a depthwise one keeps float weights behind Dequantize."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from convertkit.onnx.load import load_model
from convertkit.targets.tflite.compile import compile_model
from convertkit.targets.tflite.passes import Options
from convertkit.targets.tflite.runtimes import min_runtime_version


@pytest.mark.parametrize(("group", "kernel"), [(1, "int8"), (16, "float32")])
def test_weights_of_the_kernel(tmp_path: Path, group: int, kernel: str) -> None:
    rng = np.random.default_rng(0)
    weight = rng.integers(-127, 128, (16, 16 // group, 3, 3)).astype(np.int8)
    scale = rng.uniform(0.001, 0.01, 16).astype(np.float32)
    stored = [
        numpy_helper.from_array(array, name)
        for name, array in {"q": weight, "s": scale, "z": np.zeros(16, np.int8), "b": np.ones(16, np.float32)}.items()
    ]
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=0),
        helper.make_node("Conv", ["x", "w", "b"], ["y"], group=group, pads=[1, 1, 1, 1]),
    ]
    values = [helper.make_tensor_value_info(name, 1, [1, 16, 10, 12]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(onnx.shape_inference.infer_shapes(model), tmp_path / "m.onnx")
    compiled = compile_model(load_model(tmp_path / "m.onnx"), Options(precision="w8"))
    compiled.write(tmp_path / "m.tflite")
    convolutions = [o for o in compiled.program.subgraphs[0].operations if o.code.endswith("CONV_2D")]
    assert [o.inputs[1].dtype for o in convolutions if o.inputs[1] is not None] == [kernel]

    import onnxruntime
    from ai_edge_litert.interpreter import Interpreter

    x = rng.standard_normal((1, 16, 10, 12)).astype(np.float32)
    wanted = onnxruntime.InferenceSession(str(tmp_path / "m.onnx")).run(None, {"x": x})[0]
    found = Interpreter(str(tmp_path / "m.tflite")).get_signature_runner()(x=x.transpose(0, 2, 3, 1))["y"]
    found = found if found.shape == wanted.shape else found.transpose(0, 3, 1, 2)
    assert np.abs(found - wanted).max() <= (2e-2 if group == 1 else 1e-5) * np.abs(wanted).max()


@pytest.mark.parametrize(("stride", "code"), [(1, "FULLY_CONNECTED"), (2, "CONV_2D")])
def test_four_bits_of_one_element_are_a_dense_layer(tmp_path: Path, stride: int, code: str) -> None:
    """CONV_2D has no fast kernel for int4 weights, FULLY_CONNECTED has."""
    import ml_dtypes

    rng = np.random.default_rng(0)
    weight = rng.integers(-7, 8, (24, 16, 1, 1)).astype(ml_dtypes.int4)
    scale = rng.uniform(0.05, 0.1, 24).astype(np.float32)
    stored = [
        numpy_helper.from_array(array, name)
        for name, array in {"q": weight, "s": scale, "b": np.ones(24, np.float32)}.items()
    ]
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=0),
        helper.make_node("Conv", ["x", "w", "b"], ["c"], strides=[stride] * 2),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    shapes = {"x": [1, 16, 10, 12], "y": [1, 24, 10 // stride, 12 // stride]}
    values = [helper.make_tensor_value_info(name, 1, shape) for name, shape in shapes.items()]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(onnx.shape_inference.infer_shapes(model), tmp_path / "m.onnx")
    compiled = compile_model(load_model(tmp_path / "m.onnx"), Options(precision="w4"))
    compiled.write(tmp_path / "m.tflite")
    assert code in [operation.code for operation in compiled.program.subgraphs[0].operations]

    import onnxruntime
    from ai_edge_litert.interpreter import Interpreter

    x = rng.standard_normal((1, 16, 10, 12)).astype(np.float32)
    wanted = onnxruntime.InferenceSession(str(tmp_path / "m.onnx")).run(None, {"x": x})[0]
    found = Interpreter(str(tmp_path / "m.tflite")).get_signature_runner()(x=x.transpose(0, 2, 3, 1))["y"]
    found = found if found.shape == wanted.shape else found.transpose(0, 3, 1, 2)
    assert np.abs(found - wanted).max() <= 2e-2 * np.abs(wanted).max()


@pytest.mark.parametrize(
    ("op", "shape", "filters", "window", "stride", "kernel"),
    [
        pytest.param("Conv", (10, 12, 12), 20, 5, 1, "int8", id="few channels in a large window"),
        pytest.param("Conv", (16, 28, 28), 16, 3, 1, "int8", id="many channels"),
        pytest.param("Conv", (3, 28, 28), 16, 3, 1, "float32", id="a picture"),
        pytest.param("Conv", (96, 14, 14), 96, 1, 1, "float32", id="one element"),
        pytest.param("ConvTranspose", (128, 16, 16), 64, 2, 2, "int8", id="transposed"),
        pytest.param("ConvTranspose", (16, 7, 7), 32, 4, 2, "float32", id="transposed, slower on one machine"),
        pytest.param("ConvTranspose", (32, 32, 32), 8, 2, 2, "float32", id="transposed, few products of an output"),
    ],
)
def test_integer_kernels_between_floats_have_to_be_faster(
    tmp_path: Path, op: str, shape: tuple[int, ...], filters: int, window: int, stride: int, kernel: str
) -> None:
    rng = np.random.default_rng(0)
    sides = (shape[0], filters) if op == "ConvTranspose" else (filters, shape[0])
    axis = 1 if op == "ConvTranspose" else 0
    arrays = {
        "q": rng.integers(-127, 128, (*sides, window, window)).astype(np.int8),
        "s": rng.uniform(0.001, 0.01, filters).astype(np.float32),
        "b": rng.standard_normal(filters).astype(np.float32),
    }
    stored = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=axis),
        helper.make_node(op, ["x", "w", "b"], ["y"], strides=[stride] * 2),
    ]
    values = [helper.make_tensor_value_info("x", 1, [1, *shape]), helper.make_tensor_value_info("y", 1, None)]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(onnx.shape_inference.infer_shapes(model), tmp_path / "m.onnx")
    compiled = compile_model(load_model(tmp_path / "m.onnx"), Options(precision="w8"))
    compiled.write(tmp_path / "m.tflite")
    operations = [o for o in compiled.program.subgraphs[0].operations if "CONV" in o.code]
    assert [o.inputs[1].dtype for o in operations if o.inputs[1] is not None] == [kernel]
    # Found by running it there: TFLite 2.14 refuses a TRANSPOSE_CONV of both types.
    late = op == "ConvTranspose" and kernel == "int8"
    assert (min_runtime_version(compiled.program.subgraphs[0].operations) == "2.20.0") == late

    import onnxruntime
    from ai_edge_litert.interpreter import Interpreter

    x = rng.standard_normal((1, *shape)).astype(np.float32)
    wanted = onnxruntime.InferenceSession(str(tmp_path / "m.onnx")).run(None, {"x": x})[0]
    found = Interpreter(str(tmp_path / "m.tflite")).get_signature_runner()(x=x.transpose(0, 2, 3, 1))["y"]
    found = found if found.shape == wanted.shape else found.transpose(0, 3, 1, 2)
    assert np.abs(found - wanted).max() <= (2e-2 if kernel == "int8" else 1e-5) * np.abs(wanted).max()


def test_a_transposed_convolution_of_free_size_keeps_its_float_kernel(tmp_path: Path) -> None:
    # Its output's size is computed at run time, so it is not XNNPACK's: 434 us with integer weights, 92 without.
    weight = np.full((128, 64, 2, 2), 3, np.int8)
    stored = [numpy_helper.from_array(weight, "q"), numpy_helper.from_array(np.full(64, 0.01, np.float32), "s")]
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=1),
        helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2]),
    ]
    values = [helper.make_tensor_value_info(name, 1, ["N", *sizes]) for name, sizes in _FREE.items()]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), tmp_path / "m.onnx")
    compiled = compile_model(load_model(tmp_path / "m.onnx"), Options(precision="w8"))
    (operation,) = [o for o in compiled.program.subgraphs[0].operations if o.code == "TRANSPOSE_CONV"]
    assert operation.inputs[1] is not None
    assert operation.inputs[1].dtype == "float32"


_FREE = {"x": (128, 16, 16), "y": (64, 32, 32)}
