"""What is replayed while a model is quantized computes what the graph says, on every processor."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from convertkit.quantization.graph.replay import open_session, run_all

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_large_integers_do_not_saturate(kind) -> None:
    """Sums of two products of 8 bits do not fit into 16, which is where processors without VNNI keep them."""
    constants = {
        "w": RNG.integers(-127, 128, (64, 64)).astype(np.int8), "ws": np.full(64, 0.01, np.float32),
        "xs": np.float32(0.02), "xz": kind(0), "ys": np.float32(0.5), "yz": kind(0),
    }  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "xs", "xz"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "ws"], ["v"], axis=1),
        helper.make_node("MatMul", ["d", "v"], ["m"]),
        helper.make_node("QuantizeLinear", ["m", "ys", "yz"], ["p"]),
        helper.make_node("DequantizeLinear", ["p", "ys", "yz"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 64])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    x = np.abs(RNG.normal(0, 2, (8, 64))).astype(np.float32)
    plain = ort.SessionOptions()
    plain.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    (wanted,) = ort.InferenceSession(model.SerializeToString(), plain).run(None, {"x": x})
    (got,) = run_all(open_session(ir.from_proto(model)), ("y",), [{"x": x}], {})
    assert np.abs(got["y"] - wanted).max() <= 0.5 * 1.01  # one rounding, of the output's scale
