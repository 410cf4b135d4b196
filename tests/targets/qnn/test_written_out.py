"""What is written in other operators for the NPU computes what it did."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper, parser, shape_inference

import convertkit
from convertkit.targets.qnn.written_out import write_out

X = np.random.default_rng(1).normal(size=(2, 6, 4, 8)).astype("f4")
SCALE = numpy_helper.from_array(np.linspace(0.5, 2, 8, dtype="f4"), "scale")
SIX = [numpy_helper.from_array(np.linspace(0.5, 2, 6, dtype="f4"), name) for name in ("scales", "biases")]
AXIS = numpy_helper.from_array(np.array([-1]), "axis")
NODES = {
    "RMSNormalization": (["x", "scale"], {"epsilon": 1e-5}),
    "GroupNormalization": (["x", "scales", "biases"], {"num_groups": 2}),
    "Mish": (["x"], {}),
    "Celu": (["x"], {"alpha": 2.0}),
    "Shrink": (["x"], {"lambd": 0.5, "bias": 0.1}),
    "Softsign": (["x"], {}),
    "MeanVarianceNormalization": (["x"], {}),
    **{kind: (["x", "axis"], {}) for kind in ("ReduceL1", "ReduceL2", "ReduceSumSquare")},
}


def one(kind: str) -> ir.Model:
    inputs, attributes = NODES[kind]
    shape = [*X.shape[:3], 1] if kind.startswith("Reduce") else X.shape
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, each) for name, each in (("x", X.shape), ("y", shape))
    ]
    stored = [each for each in (SCALE, *SIX, AXIS) if each.name in inputs]
    graph = helper.make_graph([helper.make_node(kind, inputs, ["y"], **attributes)], "g", ports[:1], ports[1:], stored)
    return ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10))


@pytest.mark.parametrize("kind", NODES)
def test_it_computes_the_same(kind: str) -> None:
    model = one(kind)
    before = ort.InferenceSession(ir.to_proto(model).SerializeToString()).run(None, {"x": X})
    write_out(model)
    assert kind not in {node.op_type for node in model.graph}
    after = ort.InferenceSession(ir.to_proto(model).SerializeToString()).run(None, {"x": X})
    np.testing.assert_allclose(after[0], before[0], rtol=1e-5, atol=1e-6)


def test_a_norm_that_is_written_out_is_one_layer_norm() -> None:
    """With its scale; the products that it was made of are gone."""
    text = """<ir_version: 10, opset_import: ["": 18]> g (float[2,4,8] x) => (float[2,4,8] y)
        <float[8] w = {1,2,3,4,5,6,7,8}, float e = {0.001}, int64[1] last = {-1}> {
        s = Mul (x, x) m = ReduceMean (s, last) v = Add (m, e) r = Sqrt (v) n = Div (x, r) y = Mul (n, w) }"""
    model = ir.from_proto(shape_inference.infer_shapes(parser.parse_model(text)))
    write_out(model)
    assert [node.op_type for node in model.graph] == ["Neg", "Concat", "LayerNormalization", "Slice"]


def test_a_faint_input_of_a_norm_keeps_its_shape_on_the_npu(tmp_path) -> None:
    """As squares and their mean in 8 bits, nothing would be left of values of a tenth."""
    pytest.importorskip("onnxruntime_qnn")
    path = tmp_path / "m.onnx"
    ir.save(one("RMSNormalization"), path)
    rng = np.random.default_rng(3)
    loud = np.where(rng.random((60, 1, 1, 1)) < 0.5, 0.1, 1)
    data = {"x": (rng.normal(size=(60, *X.shape[1:])) * loud).astype("f4")}
    made = convertkit.export(path, "qnn", calib=data, output=tmp_path / "out", int8=True, full_integer=True)
    faint = np.float32(0.1) * np.sign(X)
    (found,) = made.run({"x": faint}).values()
    (expected,) = ort.InferenceSession(path).run(None, {"x": faint})
    assert 10 * np.log10(np.mean(expected**2) / np.mean((found - expected) ** 2)) > 20
