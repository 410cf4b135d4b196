"""Group and instance norms of images: as exporters write them, as operators, without transposes, at any batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from convertkit.onnx.canonical import canonicalize
from convertkit.targets.tflite.compile import compile_model
from convertkit.targets.tflite.passes import Options

CHANNELS = 8
RNG = np.random.default_rng(4)


def exported(groups: int, sizes: list[int], back: str, scale: float, opset: int) -> tuple[list, dict]:
    """Reshape, InstanceNormalization, Reshape, Mul, Add: what torch's exporters make of GroupNorm."""
    arrays = {
        "grouped": np.array(sizes),
        "g": np.full(groups, scale, np.float32),
        "b": np.zeros(groups, np.float32),
        "w": RNG.normal(1, 0.2, (CHANNELS, 1, 1)).astype(np.float32),
        "a": RNG.normal(0, 0.5, (1, CHANNELS, 1, 1)).astype(np.float32),
        "whole": np.array([-1, CHANNELS, 6, 5]),
    }
    nodes = [
        helper.make_node("Reshape", ["c", "grouped"], ["r"]),
        helper.make_node("InstanceNormalization", ["r", "g", "b"], ["i"], epsilon=1e-3),
        helper.make_node("Shape", ["c"], ["asked"]),
        helper.make_node("Reshape", ["i", back], ["n"]),
        helper.make_node("Mul", ["w", "n"], ["m"]),
        helper.make_node("Add", ["m", "a"], ["o"]),
    ]
    return nodes, arrays


def operator(groups: int, opset: int) -> tuple[list, dict]:
    length = groups if opset < 21 else CHANNELS
    arrays = {"w": RNG.normal(1, 0.2, length).astype(np.float32), "a": RNG.normal(0, 0.5, length).astype(np.float32)}
    return [helper.make_node("GroupNormalization", ["c", "w", "a"], ["o"], num_groups=groups)], arrays


def between_convolutions(nodes: list, arrays: dict, opset: int) -> onnx.ModelProto:
    arrays = {"k": RNG.normal(0, 0.3, (CHANNELS, 3, 3, 3)), "l": RNG.normal(0, 0.3, (4, CHANNELS, 1, 1))} | arrays
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"], pads=[1, 1, 1, 1]),
        *nodes,
        helper.make_node("Conv", ["o", "l"], ["y"]),
    ]
    stored = [
        numpy_helper.from_array(each if each.dtype == np.int64 else each.astype(np.float32), name)
        for name, each in arrays.items()
    ]
    declared = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 6, 5])]
    results = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4, 6, 5])]
    graph = helper.make_graph(nodes, "g", declared, results, stored)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    return onnx.shape_inference.infer_shapes(made)


def operators(proto: onnx.ModelProto, folder: Path) -> list[str]:
    """Operators of the artifact, which agrees with the reference at two batches."""
    path = folder / "model.tflite"
    compile_model(canonicalize(ir.from_proto(proto)), Options(input_layout="nhwc")).write(path)
    interpreter = Interpreter(model_path=str(path), num_threads=1)
    for batch in (1, 3):
        x = RNG.normal(1, 2, (batch, 3, 6, 5)).astype(np.float32)
        (wanted,) = ReferenceEvaluator(proto).run(None, {"x": x})
        place = interpreter.get_input_details()[0]["index"]
        interpreter.resize_tensor_input(place, (batch, 6, 5, 3))
        interpreter.allocate_tensors()
        interpreter.set_tensor(place, np.ascontiguousarray(x.transpose(0, 2, 3, 1)))
        interpreter.invoke()
        found = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
        np.testing.assert_allclose(found.transpose(0, 3, 1, 2), wanted, rtol=2e-5, atol=2e-5)
    plain = Interpreter(
        model_path=str(path), experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    )
    return [each["op_name"] for each in plain._get_ops_details()]


@pytest.mark.parametrize("back", ["whole", "asked"])
@pytest.mark.parametrize("groups", [1, 4, CHANNELS])
def test_group_norms_of_exporters_leave_no_transposes(groups: int, back: str, tmp_path: Path):
    proto = between_convolutions(*exported(groups, [0, groups, -1], back, 1, 17), 17)
    found = operators(proto, tmp_path)
    assert "TRANSPOSE" not in found
    assert "RESHAPE" not in found
    assert found.count("MUL") - (1 < groups < CHANNELS) * 2 == 2, "scale and bias are part of the norm"


def test_a_norm_with_a_scale_for_each_group_of_pixels_stays(tmp_path: Path):
    proto = between_convolutions(*exported(4, [0, 4, -1], "whole", 1.5, 17), 17)
    assert "TRANSPOSE" in operators(proto, tmp_path)


def test_samples_that_are_normalised_together_stay_so(tmp_path: Path):
    """[-1, 2, 120] is half an image to a row, not an image: two rows to a sample."""
    nodes, arrays = exported(2, [-1, 2, 60], "whole", 1, 17)
    assert "TRANSPOSE" in operators(between_convolutions(nodes, arrays, 17), tmp_path)


@pytest.mark.parametrize(("groups", "opset"), [(1, 21), (2, 21), (2, 18), (4, 18), (CHANNELS, 18)])
def test_group_normalization(groups: int, opset: int, tmp_path: Path):
    assert "TRANSPOSE" not in operators(between_convolutions(*operator(groups, opset), opset), tmp_path)


@pytest.mark.parametrize("groups", [1, 4, CHANNELS])
@pytest.mark.parametrize("written", ["exported", "operator"])
def test_equal_elements_become_the_bias(written: str, groups: int, tmp_path: Path):
    nodes, arrays = exported(groups, [0, groups, -1], "asked", 1, 21) if written == "exported" else operator(groups, 21)
    stored = [numpy_helper.from_array(each, name) for name, each in arrays.items()]
    shape = ["N", CHANNELS, 6, 5]
    declared, results = ([helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)] for name in ("c", "o"))
    opset = [helper.make_opsetid("", 21)]
    proto = helper.make_model(
        helper.make_graph(nodes, "g", declared, results, stored), opset_imports=opset, ir_version=10
    )
    path = tmp_path / "model.tflite"
    compile_model(canonicalize(ir.from_proto(proto)), Options(input_layout="nhwc")).write(path)
    interpreter = Interpreter(model_path=str(path), num_threads=1)
    interpreter.allocate_tensors()
    place, shape = (interpreter.get_input_details()[0][key] for key in ("index", "shape"))
    for number in (0.3, -7.1, 1234.5):
        interpreter.set_tensor(place, np.full(shape, number, np.float32))
        interpreter.invoke()
        found = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
        bias = arrays["a"].reshape((CHANNELS, 1, 1) if shape[1] == CHANNELS else (CHANNELS,))
        assert np.abs(found - bias).max() < 1e-5, number
