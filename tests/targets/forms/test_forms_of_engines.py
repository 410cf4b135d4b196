"""Operators that IREE and TVM lack or compute less exactly are others in the graph, which computes the same."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from convertkit.targets.iree.forms import write_exact_forms
from convertkit.targets.tvm.forms import write_forms

ROWS: dict[str, tuple[list[int], dict[str, object]]] = {
    "Asinh": ([4, 6], {}),
    "Atanh": ([4, 6], {}),
    "DFT": ([1, 6, 1], {}),
    "LpNormalization": ([4, 6], {"axis": 1, "p": 1}),
    "LpPool": ([1, 2, 7], {"kernel_shape": [3], "strides": [2], "p": 3}),
    "Pad": ([4, 6], {"mode": "wrap"}),
}
STORED = {"Pad": np.array([1, 0, 2, -1])}
"""The second input, where there is one."""


OF_TVM = ("Atanh", "DFT", "LpNormalization")


@pytest.mark.parametrize(
    ("write", "operator"), [*((write_exact_forms, each) for each in ROWS), *((write_forms, each) for each in OF_TVM)]
)
def test_an_operator_is_written_as_others(write, operator):
    shape, attributes = ROWS[operator]
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    results = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    stored = [numpy_helper.from_array(STORED[operator], "stored")] if operator in STORED else []
    node = helper.make_node(operator, ["x", *(each.name for each in stored)], ["y"], "f", **attributes)
    graph = helper.make_graph([node], "g", ports, results, stored)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    model = ir.from_proto(proto)
    write(model)
    assert operator not in {node.op_type for node in model.graph}
    x = np.random.default_rng(0).uniform(-0.9, 0.9, shape).astype(np.float32)
    x[0, 0] = 0
    wanted, found = (
        ort.InferenceSession(each.SerializeToString()).run(None, {"x": x})[0] for each in (proto, ir.to_proto(model))
    )
    np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=2e-6)
