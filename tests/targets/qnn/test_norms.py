"""Normalizations on Qualcomm's NPU: their constants change form, and the numbers do not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import convertkit
from convertkit.targets.qnn.norms import write_norms

SHAPES = {"LayerNormalization": (2, 6, 24), "InstanceNormalization": (1, 8, 5, 7)}
RNG = np.random.default_rng(5)


def channels(kind: str) -> int:
    return SHAPES[kind][1 if kind == "InstanceNormalization" else -1]


def model(nodes: list[onnx.NodeProto], kind: str, constants: dict[str, np.ndarray]) -> onnx.ModelProto:
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPES[kind]) for name in ("x", "y")]
    stored = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "norm", ports[:1], ports[1:], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def quantized(kind: str, bias_scales: Sequence[float]) -> onnx.ModelProto:
    """Only the norm's own constants are integers: what the rewriting changes."""
    width = channels(kind)
    constants = {
        "w": RNG.integers(-127, 128, width).astype(np.int8), "sw": np.float32(0.01), "zw": np.int8(0),
        "b": RNG.integers(-900, 900, width).astype(np.int32),
        "sb": np.resize(np.array(bias_scales, np.float32), width), "zb": np.zeros(width, np.int32),
    }  # fmt: skip
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["wf"]),
        helper.make_node("DequantizeLinear", ["b", "sb", "zb"], ["bf"], axis=0),
        helper.make_node(kind, ["x", "wf", "bf"], ["y"], "norm"),
    ]
    return model(nodes, kind, {name: np.asarray(value) for name, value in constants.items()})


def run(proto: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(proto.SerializeToString(), options).run(None, {"x": x})[0]


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("scales", [(1e-3,), (1e-3, 2e-3)])
def test_numbers_stay_and_constants_change_form(kind, scales):
    proto = quantized(kind, scales)
    x = RNG.normal(0, 2, SHAPES[kind]).astype(np.float32)
    before = run(proto, x)
    rewritten = ir.from_proto(proto)
    write_norms(rewritten)
    after = ir.to_proto(rewritten)
    np.testing.assert_array_equal(run(after, x), before)
    stored = {each.name: numpy_helper.to_array(each) for each in after.graph.initializer}
    nodes = {node.output[0]: node for node in after.graph.node}
    assert stored[nodes["wf"].input[0]].dtype == np.uint8
    assert stored[nodes["wf"].input[2]] == 128
    one = len(scales) == 1
    assert stored[nodes["bf"].input[1]].ndim == (0 if one else 1)
    assert [each.name for each in nodes["bf"].attribute] == ([] if one else ["axis"])


@pytest.mark.parametrize("kind", SHAPES)
def test_a_norm_runs_on_the_npu(kind, tmp_path):
    pytest.importorskip("onnxruntime_qnn")
    width = channels(kind)
    constants = {name: RNG.normal(1, 0.3, width).astype(np.float32) for name in ("w", "b")}
    onnx.save(model([helper.make_node(kind, ["x", "w", "b"], ["y"], "norm")], kind, constants), tmp_path / "m.onnx")
    samples = RNG.normal(0, 1, (12 * SHAPES[kind][0], *SHAPES[kind][1:])).astype(np.float32)
    made = convertkit.export(
        tmp_path / "m.onnx", "qnn", calib={"x": samples}, output=Path(tmp_path / "out"), int8=True, full_integer=True
    )
    assert [node.op_type for node in onnx.load(made.artifact.path).graph.node] == ["EPContext"]
    (tensor,) = made.report["steps"][-1]["parity"]["versus_previous"]["tensors"]
    assert float(tensor["lsb"]) <= 2.5
    assert float(made.report["quality"]["snr_db"]) > 25
