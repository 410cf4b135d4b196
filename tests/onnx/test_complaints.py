"""ONNX Runtime's own messages of small models that fail: the node and the reason stay, its places in C++ go."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import convertkit
from convertkit.errors import ConvertKitError, Unsupported
from convertkit.onnx.complaints import complaint
from convertkit.onnx.onnxruntime_compat import ERRORS

FLOAT, INT32, INT64 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64
POOL = {"kernel_shape": [3, 3], "pads": [3, 3, 0, 0]}
ROWS = {
    "by zero": ("Div", {}, {"x": (INT32, [2]), "z": (INT32, [2])}, "node d (Div): Integer division by zero"),
    "a condition": (
        "Reshape", {}, {"x": (FLOAT, [4, 3]), "z": (INT64, [1])},
        "node d (Reshape): The input tensor cannot be reshaped to the requested shape. Input shape:{4,3}, requested "
        "shape:{4}",
    ),
    "no place": (
        "Gather", {}, {"x": (FLOAT, [0]), "z": (INT64, [1])},
        "node d (Gather): indices element out of data bounds, idx=0 must be within the inclusive range [0,-1]",
    ),
    "loading": ("AveragePool", POOL, {"x": (FLOAT, [1, 1, 8, 8])}, "Pad should be smaller than kernel."),
    "no kernel": (
        "Mul", {}, {"x": (TensorProto.BFLOAT16, [4]), "z": (TensorProto.BFLOAT16, [4])},
        "Could not find an implementation for Mul(14) node with name 'd'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
def test_the_node_and_the_reason(row):
    op, attributes, inputs, wanted = ROWS[row]
    infos = [helper.make_tensor_value_info(name, *each) for name, each in inputs.items()]
    node = helper.make_node(op, list(inputs), ["y"], name="d", **attributes)
    result = helper.make_tensor_value_info("y", inputs["x"][0], None)
    model = helper.make_model(
        helper.make_graph([node], "g", infos, [result]), opset_imports=[helper.make_opsetid("", 18)], ir_version=8
    )
    feed = {name: np.zeros(shape, helper.tensor_dtype_to_np_dtype(kind)) for name, (kind, shape) in inputs.items()}
    options = ort.SessionOptions()
    options.log_severity_level = 4
    with pytest.raises(ERRORS) as raised:
        ort.InferenceSession(model.SerializeToString(), options).run(None, feed)
    assert complaint(raised.value) == wanted


def test_a_file_of_mixed_types(tmp_path):
    """As torch writes a convolution in a region of autocast: no folder of ours is named, and the file is to blame."""
    kinds = {"x": TensorProto.FLOAT16, "z": FLOAT}
    infos = [helper.make_tensor_value_info(name, kind, [2, 2]) for name, kind in kinds.items()]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT16, [2, 2])
    node = helper.make_node("MatMul", ["x", "z"], ["y"], name="product")
    graph = helper.make_graph([node], "g", infos, [result])
    opset = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "model.onnx")
    said = (
        "node product (MatMul) takes tensor(float16) and tensor(float), where ONNX has one type for both: that is not "
    )
    said += "valid ONNX; export the model again, in one type of floats"
    with pytest.raises(ConvertKitError) as refused:
        convertkit.export(str(tmp_path / "model.onnx"), target="onnxruntime", output=tmp_path / "out")
    assert str(refused.value).splitlines()[0].endswith(said)
    assert f"{tmp_path}" not in str(refused.value)


@pytest.mark.parametrize(("error", "wanted"), [(RuntimeError(), "RuntimeError"), (RuntimeError("x" * 999), "x" * 400)])
def test_other_messages_stay(error, wanted):
    assert complaint(error) == wanted


def test_operators_of_a_library_are_named(tmp_path: Path) -> None:
    """As ONNX Runtime's extensions put the decoding of a picture in front of a model."""
    node = helper.make_node("DecodeImage", ["x"], ["y"], name="d", domain="com.microsoft.extensions")
    ends = [helper.make_tensor_value_info(name, TensorProto.UINT8, ["n"]) for name in "xy"]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft.extensions", 1)]
    model = helper.make_model(helper.make_graph([node], "g", ends[:1], ends[1:]), opset_imports=opsets, ir_version=8)
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(Unsupported) as refused:
        convertkit.export(tmp_path / "m.onnx", output=tmp_path / "out")
    said = "DecodeImage is an operator of com.microsoft.extensions, which ONNX Runtime has from a library alone"
    assert str(refused.value).startswith(f"{said}\n  try   onnx.utils.extract_model")
