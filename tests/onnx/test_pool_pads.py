"""Pads that no window reaches go, so that ONNX Runtime loads what it refuses as it was; all others stay."""

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from convertkit.onnx.canonical import canonicalize

ROWS = {
    "as PyTorch writes them": ("AveragePool", {"pads": [1, 1, 2, 3], "strides": [2, 2]}, [1, 1, 2, 2]),
    "padding counts": ("AveragePool", {"pads": [1, 1, 1, 3], "strides": [1, 2], "count_include_pad": 1}, [1, 1, 1, 2]),
    "maxima": ("MaxPool", {"pads": [0, 1, 3, 3], "strides": [3, 2]}, [0, 1, 1, 2]),
    "dilated": ("MaxPool", {"pads": [0, 1, 3, 3], "strides": [4, 4], "dilations": [2, 2]}, [0, 1, 2, 2]),
    "steps longer than pads": ("MaxPool", {"pads": [0, 0, 3, 3], "strides": [5, 5]}, [0, 0, 2, 0]),
    "within the kernel": ("MaxPool", {"pads": [0, 0, 2, 2], "strides": [3, 3]}, [0, 0, 2, 2]),
}


@pytest.mark.parametrize("row", ROWS)
def test_pads_that_no_window_reaches(row):
    op, attributes, wanted = ROWS[row]
    node = helper.make_node(op, ["x"], ["y"], kernel_shape=[3, 3], **attributes)
    x = np.random.default_rng(0).standard_normal((1, 2, 11, 14)).astype(np.float32)
    (want,) = ReferenceEvaluator(_model(node, (1, 2, 11, 14))).run(None, {"x": x})
    made = canonicalize(ir.from_proto(_model(node, (1, 2, 11, 14))))
    (pool,) = [each for each in made.graph if each.op_type == op]
    assert list(pool.attributes.get_ints("pads")) == wanted
    (got,) = ort.InferenceSession(ir.to_proto(made).SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-6)  # sums in another order


@pytest.mark.parametrize(("sizes", "rounds_up", "wanted"), [(("h", "w"), 0, [1, 1, 2, 3]), ((11, 14), 1, [1, 1, 2, 2])])
def test_pads_of_unknown_sizes_stay_and_rounding_up_reaches_no_more_than_they_do(sizes, rounds_up, wanted):
    window = {"kernel_shape": [3, 3], "pads": [1, 1, 2, 3], "strides": [2, 2], "ceil_mode": rounds_up}
    node = helper.make_node("MaxPool", ["x"], ["y"], **window)
    made = canonicalize(ir.from_proto(_model(node, (1, 2, *sizes))))
    (pool,) = [each for each in made.graph if each.op_type == "MaxPool"]
    assert list(pool.attributes.get_ints("pads")) == wanted


def _model(node, shape):
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", shape), ("y", [None] * 4))]
    graph = helper.make_graph([node], "pool", infos[:1], infos[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
