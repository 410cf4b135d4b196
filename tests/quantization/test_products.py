"""Every form of Gemm in forms that have integer kernels: the same numbers, and what becomes of biases."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

import convertkit
from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.load import load_model
from convertkit.onnx.runner import OnnxRunner
from convertkit.onnx.save import save_model
from convertkit.quantization.prepare.prepare import prepare
from convertkit.quantization.prepare.products import plain_gemm
from convertkit.targets.tflite.inspection import operators
from tests.quantization.models import artifact_of, model_of

ROWS, INNER, COLUMNS = 6, 5, 6
"""As many rows as columns, so that a column of biases could be taken for a row."""


def f(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape).astype("f4")


STORED = {"w": f(COLUMNS, INNER)}
CASES = {
    "row": ("x w b", {**STORED, "b": f(COLUMNS)}, {"transB": 1}, "Gemm"),
    "row of two axes": ("x w b", {**STORED, "b": f(1, COLUMNS)}, {"transB": 1}, "Gemm"),
    "one bias": ("x w b", {**STORED, "b": f(1, 1)}, {"transB": 1, "beta": 2.0}, "Gemm"),
    "row with factors": ("x w b", {"w": f(INNER, COLUMNS), "b": f(1, COLUMNS)}, {"alpha": 0.5, "beta": 2.0}, "Gemm"),
    "row, stored as it is needed, with factors": (
        "x w b", {**STORED, "b": f(COLUMNS)}, {"transB": 1, "alpha": 0.5, "beta": 2.0}, "Gemm"
    ),
    "column": ("x w b", {**STORED, "b": f(ROWS, 1)}, {"transB": 1, "beta": 2.0}, "Gemm Add"),
    "matrix": ("x w b", {**STORED, "b": f(ROWS, COLUMNS)}, {"transB": 1}, "Gemm Add"),
    "computed bias": ("x w c", STORED, {"transB": 1, "beta": 0.5}, "Gemm Mul Add"),
    "no bias at all": ("x w c", STORED, {"transB": 1, "beta": 0.0}, "Gemm"),
    "columns first": ("xt w b", {**STORED, "b": f(COLUMNS)}, {"transA": 1, "transB": 1}, "Transpose Gemm"),
    "computed": ("x z", {}, {}, "MatMul"),
    "computed, with factors": (
        "xt zt b", {"b": f(COLUMNS)}, {"transA": 1, "transB": 1, "alpha": 0.25, "beta": 2.0},
        "Transpose Transpose MatMul Mul Add",
    ),
}  # fmt: skip
GIVEN = {"x": (ROWS, INNER), "xt": (INNER, ROWS), "z": (INNER, COLUMNS), "zt": (COLUMNS, INNER), "c": (ROWS, COLUMNS)}


def source(name, folder):
    names, constants, attributes, _ = CASES[name]
    inputs = {each: list(GIVEN[each]) for each in names.split() if each in GIVEN}
    node = helper.make_node("Gemm", names.split(), ["y"], "product", **attributes)
    return artifact_of(model_of([node], constants, inputs, {"y": [ROWS, COLUMNS]}), folder)


def feeds(before, count):
    rng = np.random.default_rng(1)
    return [{each.name: rng.normal(size=each.shape).astype("f4") for each in before.inputs} for _ in range(count)]


@pytest.mark.parametrize("name", CASES)
def test_the_same_numbers(tmp_path, name) -> None:
    before = source(name, tmp_path)
    model = load_model(before.path)
    prepare(model)
    after = save_model(model, tmp_path / "prepared.onnx", "test")
    written = ir.load(after.path).graph
    assert [node.op_type for node in written] == CASES[name][3].split()
    assert all(
        len(node.inputs) < 3 or node.inputs[2].shape.dims == (COLUMNS,) for node in written if "Gemm" in node.op_type
    )
    with OnnxRunner(before) as one, OnnxRunner(after) as other:
        for feed in feeds(before, 3):
            np.testing.assert_allclose(one.run(feed)["y"], other.run(feed)["y"], atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_integers_throughout(tmp_path, name) -> None:
    before = source(name, tmp_path)
    data = feeds(before, 24)
    calibration = {each: np.concatenate([feed[each] for feed in data]) for each in data[0]}
    choices = {"int8": True, "full_integer": True, "calib": calibration, "output": tmp_path / "out"}
    made = convertkit.export(before.path, "tflite", **choices)
    computed = [each for each in operators(made.artifact.path) if "QUANTIZE" not in each.kind]
    assert {each.precision for each in computed} == {"int8"}


def test_products_of_doubles_are_left(tmp_path) -> None:
    node = helper.make_node("Gemm", ["x", "w"], ["y"], "product", alpha=0.1)
    doubles = [helper.make_tensor_value_info(name, 11, shape) for name, shape in (("x", [2, 3]), ("y", [2, 4]))]
    weight = onnx.numpy_helper.from_array(np.ones((3, 4)), "w")
    graph = helper.make_graph([node], "g", doubles[:1], doubles[1:], [weight])
    model = canonicalize(ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])))
    plain_gemm(model.graph, model.graph[0])
    assert [each.attributes.get_float("alpha", 1.0) for each in model.graph] == [pytest.approx(0.1)]
