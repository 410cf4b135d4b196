"""Models of bfloat16 in ONNX Runtime: each operator in float32 between rounded values, under the names they had."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_ir.passes.common import ShapeInferencePass
from onnxruntime import SessionOptions

from convertkit.artifact import Artifact
from convertkit.errors import ToolError
from convertkit.onnx.bfloats import executable, in_float32, session
from convertkit.onnx.probe import OnnxProbe
from convertkit.onnx.runner import OnnxRunner
from convertkit.onnx.specs import interface

B = ml_dtypes.bfloat16
DRAW = np.random.default_rng(11)
WEIGHT = DRAW.normal(0, 1, (5, 3)).astype(B)
X = DRAW.normal(0, 1, (2, 5)).astype(np.float32)


def rounded(value: np.ndarray) -> np.ndarray:
    return value.astype(B).astype(np.float32)


def network(*, short_ends: bool = False) -> onnx.ModelProto:
    """A product, a sum with itself, Relu; from and to float32, or bfloat16."""
    kind = TensorProto.BFLOAT16 if short_ends else TensorProto.FLOAT
    body = [
        helper.make_node("MatMul", ["b", "w"], ["m"], "product"),
        helper.make_node("Add", ["m", "m"], ["a"], "sum"),
        helper.make_node("Relu", ["a"], ["r"], "relu"),
    ]
    if short_ends:
        body[0].input[0], body[-1].output[0] = "x", "y"
    else:
        body.insert(0, helper.make_node("Cast", ["x"], ["b"], "down", to=TensorProto.BFLOAT16))
        body.append(helper.make_node("Cast", ["r"], ["y"], "up", to=TensorProto.FLOAT))
    graph = helper.make_graph(
        body,
        "g",
        [helper.make_tensor_value_info("x", kind, ["N", 5])],
        [helper.make_tensor_value_info("y", kind, ["N", 3])],
        [numpy_helper.from_array(WEIGHT, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def written(proto: onnx.ModelProto, folder: Path) -> Artifact:
    path = folder / "model.onnx"
    onnx.save(proto, path)
    return Artifact(path, "onnx", *interface(ir.from_proto(proto)), "")


def wanted() -> np.ndarray:
    """As NumPy computes it in float32, rounded behind each operator."""
    product = rounded(rounded(X) @ WEIGHT.astype(np.float32))
    return np.maximum(rounded(product + product), 0)


def test_each_operator_rounds_its_result(tmp_path: Path) -> None:
    with OnnxRunner(written(network(), tmp_path)) as runner:
        assert runner.runtime.endswith(", bfloat16 operators in float32")
        np.testing.assert_array_equal(runner.run({"x": X})["y"], wanted())
        assert "MatMul" in runner.refusal
    assert runner.runtime.endswith(", bfloat16 operators in float32"), "still known when it is closed"


def test_an_interface_of_bfloat16_keeps_its_type(tmp_path: Path) -> None:
    with OnnxRunner(written(network(short_ends=True), tmp_path)) as runner:
        got = runner.run({"x": X.astype(B)})["y"]
    assert got.dtype == B
    np.testing.assert_array_equal(got.astype(np.float32), wanted())


def test_inner_values_keep_their_names(tmp_path: Path) -> None:
    probe = OnnxProbe(written(network(), tmp_path))
    found = probe.values({"x": X}, ["m", "a"])
    np.testing.assert_array_equal(found["a"].astype(np.float32), rounded(2 * found["m"].astype(np.float32)))
    assert found["m"].dtype == B


def test_bodies_are_computed_too(tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["" : 21]> g (float[N,3] x, bool c) => (float[N,3] y)
    { b = Cast <to = 16> (x)
      s = If (c) <then_branch = one () => (bfloat16[N,3] t) { t = Mul (b, b) },
                  else_branch = two () => (bfloat16[N,3] e) { e = Exp (b) }>
      y = Cast <to = 1> (s) }"""
    x = DRAW.normal(0, 1, (2, 3)).astype(np.float32)
    with OnnxRunner(written(onnx.parser.parse_model(text), tmp_path)) as runner:
        for choice, answer in ((True, rounded(x) ** 2), (False, np.exp(rounded(x)))):
            got = runner.run({"x": x, "c": np.array(choice)})["y"]
            np.testing.assert_array_equal(got, rounded(answer))


def test_types_in_attributes_follow(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["b"], to=TensorProto.BFLOAT16),
        helper.make_node("ConstantOfShape", ["n"], ["c"], value=numpy_helper.from_array(np.array([3], B))),
        helper.make_node("Add", ["b", "c"], ["s"]),
        helper.make_node("Cast", ["s"], ["y"], to=TensorProto.FLOAT),
    ]
    infos = (
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [4]),
        helper.make_tensor_value_info("n", TensorProto.INT64, [1]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [4]),
    )
    proto = helper.make_model(
        helper.make_graph(nodes, "g", infos[:2], infos[2:]), opset_imports=[helper.make_opsetid("", 21)], ir_version=10
    )
    x = np.array([1, 2.01, -3, 200], np.float32)
    with OnnxRunner(written(proto, tmp_path)) as runner:
        got = runner.run({"x": x, "n": np.array([4])})["y"]
    np.testing.assert_array_equal(got, rounded(rounded(x) + np.float32(3)))


def test_what_has_no_bfloat16_stays_as_it_is() -> None:
    text = '<ir_version: 10, opset_import: ["" : 21]> g (float[4] x) => (float[4] y) { y = Relu (x) }'
    model = ir.from_proto(onnx.parser.parse_model(text))
    assert executable(model) is model
    assert not in_float32(model)
    assert len(model.graph) == 1


def test_a_copy_is_changed() -> None:
    model = ir.from_proto(network())
    ShapeInferencePass()(model)
    assert executable(model) is not model
    assert {value.dtype for node in model.graph for value in node.outputs[:1] if value.name != "y"} == {
        ir.DataType.BFLOAT16
    }
    assert [node.op_type for node in model.graph] == ["Cast", "MatMul", "Add", "Relu", "Cast"]


def test_users_never_get_the_emulation(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="MatMul"), OnnxRunner(written(network(), tmp_path), optimised=True):
        pass


def test_without_roundings_operators_read_each_other_s_results(tmp_path: Path) -> None:
    made = session(written(network(), tmp_path).path, SessionOptions(), rounds=False)
    assert made is not None
    (got,) = made.run(["y"], {"x": X})
    product = X @ WEIGHT.astype(np.float32)
    np.testing.assert_allclose(got, np.maximum(product + product, 0), rtol=1e-6)
    assert np.abs(got - wanted()).max() > 1e-3
