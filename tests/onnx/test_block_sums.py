"""Sums over axes that lie apart, which ONNX Runtime adds one by one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx.parser
import onnx_ir as ir
import onnxruntime as ort
import pytest

from convertkit.onnx.canonical import canonicalize


def _made(shape: str, result: str, axes: str, operator: str = "ReduceMean<keepdims=1>") -> ir.Model:
    text = f"""<ir_version: 8, opset_import: ["" : 18]>
        g (float[{shape}] x) => (float[{result}] y) {{ a = Constant<value_ints=[{axes}]>() y = {operator}(x, a) }}"""
    return canonicalize(ir.from_proto(onnx.parser.parse_model(text)))


@pytest.mark.parametrize(
    ("operator", "result", "wanted"),
    [
        ("ReduceMean<keepdims=1>", "n,1,1,2,1", np.mean),
        ("ReduceMean<keepdims=0>", "n,2", np.mean),
        ("ReduceSum<keepdims=0>", "n,2", np.sum),
    ],
)
def test_many_elements_are_summed_up_in_blocks(operator: str, result: str, wanted: Callable[..., np.ndarray]) -> None:
    """Means of a group norm with its channels last were 1e-5 off, and models with it were refused."""
    model = _made("n,40,40,2,23", result, "1,2,-1", operator)
    assert [node.op_type for node in model.graph] == [operator.partition("<")[0]] * 2
    x = (np.random.default_rng(0).random((2, 40, 40, 2, 23)) * 0.01 + 1).astype(np.float32)
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString())
    (found,) = session.run(None, {"x": x})
    exact = wanted(x.astype(np.float64), axis=(1, 2, 4))
    np.testing.assert_allclose(found.reshape(exact.shape), exact, rtol=4e-6)


@pytest.mark.parametrize(
    ("shape", "result", "axes"),
    [("n,4,4,2,3", "n,1,1,2,1", "1,2,4"), ("n,40,40,2", "n,1,1,2", "1,2"), ("n,2,40,40", "n,2,1,1", "2,3")],
)
def test_others_are_left(shape: str, result: str, axes: str) -> None:
    """Few elements, axes that are not the last, and axes that are the last without a gap."""
    assert len(list(_made(shape, result, axes).graph)) == 1
