"""Attention masks: numbers that stand for infinity keep no scores from being quantized, and masks keep working."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from convertkit.artifact import Array
from tests.quantization.models import model_of

RNG = np.random.default_rng(0)


def sequences(count: int, seed: int, *, masked: bool = True) -> Array:
    """Feature 0 marks the keys that are masked."""
    rng = np.random.default_rng(seed)
    data = rng.normal(0, 1, (count, 16, 64))
    data[:, :, 0] = np.where(rng.random((count, 16)) < 0.2, -3.0, 0.0) if masked else 0.0
    return data.astype(np.float32)


def attention(way: str, mark: float) -> onnx.ModelProto:
    """Scores of one head; keys whose first feature is below -1.5 are masked."""
    constants = {"wq": RNG.normal(0, 0.05, (64, 64)), "wk": RNG.normal(0, 0.05, (64, 64)), "limit": -1.5, "mark": mark}
    nodes = [
        helper.make_node("MatMul", ["x", "wq"], ["q"], "query"),
        helper.make_node("MatMul", ["x", "wk"], ["k"], "key"),
        helper.make_node("Transpose", ["k"], ["t"], "turn", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "t"], ["s"], "scores"),
        helper.make_node("Slice", ["x", "zero", "one", "two"], ["first"], "first"),
        helper.make_node("Transpose", ["first"], ["row"], "row", perm=[0, 2, 1]),
        helper.make_node("Less", ["row", "limit"], ["masked"], "masked"),
    ]
    if way == "where":
        nodes.append(helper.make_node("Where", ["masked", "mark", "s"], ["m"], "mask"))
    else:
        nodes += [
            helper.make_node("Cast", ["masked"], ["number"], "number", to=onnx.TensorProto.FLOAT),
            helper.make_node("Mul", ["number", "mark"], ["term"], "term"),
            helper.make_node("Add", ["s", "term"], ["m"], "mask"),
        ]
    nodes.append(helper.make_node("Softmax", ["m"], ["y"], "softmax", axis=-1))
    arrays = {name: np.asarray(value, np.float32) for name, value in constants.items()}
    arrays |= {name: np.array([value]) for name, value in {"zero": 0, "one": 1, "two": 2}.items()}
    return model_of(nodes, arrays, {"x": [1, 16, 64]}, {"y": [1, 16, 16]})


@pytest.mark.parametrize("precision", ["int8", "int16x8"])
@pytest.mark.parametrize("calibrated_with_masks", [True, False])
@pytest.mark.parametrize(("way", "mark"), [("add", -1e9), ("add", float(np.finfo("f4").min)), ("where", -np.inf)])
def test_masks_hold(quantized, precision: str, way: str, mark: float, calibrated_with_masks: bool) -> None:
    result = quantized(attention(way, mark), sequences(24, 1, masked=calibrated_with_masks), precision)
    fresh = sequences(16, 5)
    expected, got = result.outputs(fresh)
    assert (expected == 0).any()
    assert got[expected == 0].max() < 1e-6
    assert result.snr_db(fresh) > 25


def causal(rows: int | str) -> onnx.ModelProto:
    """Scores of one head under a triangle of -inf, made from the input's own length as exporters write it."""
    constants = {"wq": RNG.normal(0, 0.05, (64, 64)), "wk": RNG.normal(0, 0.05, (64, 64))}
    filling = helper.make_tensor("filling", onnx.TensorProto.FLOAT, [1], [-np.inf])
    nodes = [
        helper.make_node("MatMul", ["x", "wq"], ["q"], "query"),
        helper.make_node("MatMul", ["x", "wk"], ["k"], "key"),
        helper.make_node("Transpose", ["k"], ["t"], "turn", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "t"], ["s"], "scores"),
        helper.make_node("Shape", ["x"], ["length"], "length", start=1, end=2),
        helper.make_node("Concat", ["length", "length"], ["square"], "square", axis=0),
        helper.make_node("ConstantOfShape", ["square"], ["full"], "full", value=filling),
        helper.make_node("Trilu", ["full", "one"], ["triangle"], "triangle", upper=1),
        helper.make_node("Unsqueeze", ["triangle", "zero"], ["row"], "row"),
        helper.make_node("Add", ["s", "row"], ["m"], "mask"),
        helper.make_node("Softmax", ["m"], ["y"], "softmax", axis=-1),
    ]
    arrays = {name: np.asarray(value, np.float32) for name, value in constants.items()}
    arrays |= {"zero": np.array([0]), "one": np.array(1)}
    return model_of(nodes, arrays, {"x": [1, rows, 64]}, {"y": [1, rows, rows]})


@pytest.mark.parametrize("rows", [16, "T"])
def test_triangles_of_infinity_hold(quantized, rows: int | str) -> None:
    result = quantized(causal(rows), sequences(24, 1), "int8")
    fresh = sequences(16, 5)
    expected, got = result.outputs(fresh)
    assert got[expected == 0].max() == 0
    assert result.snr_db(fresh) > 25
