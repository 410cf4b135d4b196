"""Pairs behind operators that only move integers: dropped where they repeat what came in, kept elsewhere."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from convertkit.targets.openvino.repeated_pairs import drop_repeated_pairs, round_behind_pools

X = np.random.default_rng(0).normal(0, 2, (1, 3, 4, 5)).astype(np.float32)


def network(body: str, zero: int = 3, scale: float = 0.05, result: str = "float[1,3,a,b]") -> ir.Model:
    """``x`` is rounded at 0.05 and zero point 3, ``moved`` at ``scale`` and ``zero``."""
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
    g (float[1,3,4,5] x) => ({result} y)
    <float[4] four = {{1, 1, 2, 3}}, float[8] box = {{0, 0, 0, 0, 1, 1, 2, 1}},
     float s = {{0.05}}, int8 z = {{3}}, float t = {{{scale}}}, int8 u = {{{zero}}}> {{
        q = QuantizeLinear (x, s, z)  d = DequantizeLinear (q, s, z)
        {body}
        r = QuantizeLinear (moved, t, u)  e = DequantizeLinear (r, t, u)
        y = Sigmoid (e) }}"""
    return ir.from_proto(onnx.parser.parse_model(text))


POOL = "moved = MaxPool <kernel_shape = [2, 2]> (d)"
LARGER = 'moved = Resize <mode = "nearest", coordinate_transformation_mode = "{}"> (d, box, four)'
CROP = LARGER.format("tf_crop_and_resize")
JOIN = "moved = Concat <axis = 1> (d, d)"


@pytest.mark.parametrize(
    "body", [POOL, "moved = Transpose <perm = [0, 1, 3, 2]> (d)", JOIN, LARGER.format("half_pixel")]
)
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
        (CROP, 3, 0.05),
    ],
    ids=["another zero point", "another scale", "a float operand", "new values", "a number of its own"],
)
def test_what_rounds_stays(body: str, zero: int, scale: float) -> None:
    assert drop_repeated_pairs(network(body, zero, scale, "float[1,c,a,b]")) == 0


def test_names_of_outputs_stay() -> None:
    model = network(POOL)
    model.graph.outputs[0] = next(node.outputs[0] for node in model.graph if node.outputs[0].name == "e")
    assert drop_repeated_pairs(model) == 1
    assert [value.name for value in model.graph.outputs] == ["e"]


PYRAMID = """
    a = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (d)
    a1 = QuantizeLinear (a, {0}, z)  a2 = DequantizeLinear (a1, {0}, z)
    b = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (a2)
    b1 = QuantizeLinear (b, s, z)  b2 = DequantizeLinear (b1, s, z)
    moved = Concat <axis = 1> (d, a2, b2)"""


def _values(model: ir.Model) -> list[np.ndarray]:
    return ReferenceEvaluator(ir.to_proto(model)).run(None, {"x": X})


@pytest.mark.parametrize(("scale", "dropped"), [("s", 3), ("t", 0)])
def test_what_was_moved_before_counts(scale: str, dropped: int) -> None:
    """A pool behind a pool and both joined, as in a pyramid; with another scale in its midst nothing repeats."""
    model = network(PYRAMID.format(scale), 3, 0.05 if dropped else 0.06, "float[1,9,4,5]")
    wanted = _values(model)
    assert drop_repeated_pairs(model) == dropped
    np.testing.assert_array_equal(_values(model), wanted)


def test_a_pair_whose_integers_are_an_output_stays_and_still_counts() -> None:
    model = network(PYRAMID.format("s"), result="float[1,9,4,5]")
    model.graph.outputs.append(next(node.outputs[0] for node in model.graph if node.outputs[0].name == "a1"))
    wanted = _values(model)
    assert drop_repeated_pairs(model) == 2
    assert [node.outputs[0].name for node in model.graph if node.op_type == "QuantizeLinear"] == ["q", "a1"]
    for found, value in zip(_values(model), wanted, strict=True):
        np.testing.assert_array_equal(found, value)


def pooled(channels: int, more: str = "", outputs: str = "") -> ir.Model:
    """A map of so many channels: rounded, pooled, and read by a Sigmoid."""
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
    g (float[1,{channels},4,5] x) => (float[1,{channels},3,4] y{outputs}) <float s = {{0.05}}, int8 z = {{3}}> {{
        n = Neg (x)
        q = QuantizeLinear (n, s, z)  d = DequantizeLinear (q, s, z)
        m = MaxPool <kernel_shape = [2, 2]> (d)
        {more}
        y = Sigmoid (m) }}"""
    return ir.from_proto(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text)))


def test_few_channels_are_pooled_before_they_are_rounded() -> None:
    """The same numbers, also beyond the ends of the integers' range; several readers see them."""
    model, x = pooled(3, "w = Neg (m)", ", float[1,3,3,4] w"), 4 * X
    wanted = ReferenceEvaluator(ir.to_proto(model)).run(None, {"x": x})
    assert round_behind_pools(model) == 1
    assert [node.op_type for node in model.graph][:4] == ["Neg", "MaxPool", "QuantizeLinear", "DequantizeLinear"]
    found = ReferenceEvaluator(ir.to_proto(model)).run(None, {"x": x})
    assert all(np.array_equal(one, other) for one, other in zip(found, wanted, strict=True))


@pytest.mark.parametrize(
    "model",
    [pooled(32), pooled(3, "w = Neg (d)", ", float[1,3,4,5] w"), pooled(3, outputs=", float[1,3,3,4] m")],
    ids=["many channels", "another reader of the integers", "the pool is an output"],
)
def test_what_is_pooled_as_integers(model: ir.Model) -> None:
    assert round_behind_pools(model) == 0
