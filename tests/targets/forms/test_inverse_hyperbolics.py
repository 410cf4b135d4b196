"""Asinh and Atanh by other operators: as near to float64 as float32 allows, from the smallest to the largest."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from convertkit.targets.forms.inverse_hyperbolics import write_asinh, write_atanh

SMALL = np.geomspace(1e-38, 0.99, 400)


def computed(kind: str, form: Callable[[ir.Node], None], x: np.ndarray) -> np.ndarray:
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [len(x)]) for name in "xy"]
    graph = helper.make_graph([helper.make_node(kind, ["x"], ["y"], "f")], "g", ports[:1], ports[1:])
    model = ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))
    form(model.graph.node("f"))
    assert kind not in {node.op_type for node in model.graph}
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString(), options)
    return session.run(None, {"x": x})[0]


@pytest.mark.parametrize(
    ("kind", "form", "exact", "sizes"),
    [
        ("Asinh", write_asinh, np.arcsinh, np.concatenate([SMALL, np.geomspace(1, 3e38, 400)])),
        ("Atanh", write_atanh, np.arctanh, np.concatenate([SMALL, 1 - np.geomspace(1e-6, 0.01, 50)])),
    ],
)
def test_small_and_large_numbers_keep_their_precision(kind, form, exact, sizes):
    x = np.concatenate([-sizes, [0], sizes]).astype(np.float32)
    np.testing.assert_allclose(computed(kind, form, x), exact(x.astype(np.float64)), rtol=1e-6, atol=1e-44)


@pytest.mark.parametrize(
    ("kind", "form", "x", "wanted"),
    [
        ("Asinh", write_asinh, [np.inf, -np.inf, np.nan], [np.inf, -np.inf, np.nan]),
        ("Atanh", write_atanh, [1, -1, 2, np.nan], [np.inf, -np.inf, np.nan, np.nan]),
    ],
)
def test_what_is_no_number_stays_so(kind, form, x, wanted):
    np.testing.assert_array_equal(computed(kind, form, np.array(x, np.float32)), np.array(wanted, np.float32))
