"""Min and Max of a scalar and a vector of one keep the vector's rank through the optimizer."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
from onnx import TensorProto, helper

from convertkit.onnx.canonical import canonicalize


def test_a_scalar_between_vectors_of_one_stays_a_vector():
    nodes = [helper.make_node("Min", ["x", "high"], ["m"]), helper.make_node("Max", ["m", "low"], ["y"])]
    bounds = [helper.make_tensor(name, TensorProto.FLOAT, [1], [value]) for name, value in (("high", 2), ("low", -1))]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
    graph = helper.make_graph(nodes, "g", [x], [y], bounds)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    model = canonicalize(ir.from_proto(made))
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(session.run(None, {"x": np.asarray(5, np.float32)})[0], np.float32([2]))
