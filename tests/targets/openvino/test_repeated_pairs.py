"""Pairs behind operators that only move integers: dropped where they repeat what came in, kept elsewhere."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from convertkit.targets.openvino.repeated_pairs import drop_repeated_pairs

X = np.random.default_rng(0).normal(0, 2, (1, 3, 4, 5)).astype(np.float32)


def network(body: str, zero: int = 3, scale: float = 0.05, result: str = "float[1,3,a,b]") -> ir.Model:
    """``x`` is rounded at 0.05 and zero point 3, ``moved`` at ``scale`` and ``zero``."""
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
    g (float[1,3,4,5] x) => ({result} y)
    <float s = {{0.05}}, int8 z = {{3}}, float t = {{{scale}}}, int8 u = {{{zero}}}> {{
        q = QuantizeLinear (x, s, z)  d = DequantizeLinear (q, s, z)
        {body}
        r = QuantizeLinear (moved, t, u)  e = DequantizeLinear (r, t, u)
        y = Sigmoid (e) }}"""
    return ir.from_proto(onnx.parser.parse_model(text))


POOL = "moved = MaxPool <kernel_shape = [2, 2]> (d)"
JOIN = "moved = Concat <axis = 1> (d, d)"


@pytest.mark.parametrize("body", [POOL, "moved = Transpose <perm = [0, 1, 3, 2]> (d)", JOIN])
def test_what_rounds_nothing_is_dropped(body: str) -> None:
    model = network(body, result="float[1,c,a,b]")
    (wanted,) = ReferenceEvaluator(ir.to_proto(model)).run(None, {"x": X})
    assert drop_repeated_pairs(model) == 1
    (found,) = ReferenceEvaluator(ir.to_proto(model)).run(None, {"x": X})
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("body", "zero", "scale"),
    [
        (POOL, 4, 0.05),
        (POOL, 3, 0.06),
        ("moved = Concat <axis = 1> (d, x)", 3, 0.05),
        ("moved = AveragePool <kernel_shape = [2, 2]> (d)", 3, 0.05),
    ],
    ids=["another zero point", "another scale", "a float operand", "new values"],
)
def test_what_rounds_stays(body: str, zero: int, scale: float) -> None:
    assert drop_repeated_pairs(network(body, zero, scale, "float[1,c,a,b]")) == 0


def test_names_of_outputs_stay() -> None:
    model = network(POOL)
    model.graph.outputs[0] = next(node.outputs[0] for node in model.graph if node.outputs[0].name == "e")
    assert drop_repeated_pairs(model) == 1
    assert [value.name for value in model.graph.outputs] == ["e"]
