"""Moments in which positions count by how much the outputs depend on them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper

from convertkit.onnx.canonical import canonicalize
from convertkit.quantization.graph.units import find_units
from convertkit.quantization.pruning.surgery import PRODUCTS
from convertkit.quantization.weights.patches import columns_of, moments
from tests.quantization.models import model_of

RANDOM = np.random.default_rng(0)
DENSE = (
    [helper.make_node("MatMul", ["x", "w"], ["y"], "product")],
    {"w": RANDOM.normal(0, 1, (4, 3)).astype(np.float32)},
    [6, 4],
    [6, 3],
)
WINDOWS = (
    [helper.make_node("Conv", ["x", "w"], ["y"], "product", pads=[1, 1, 1, 1], strides=[2, 1], group=2)],
    {"w": RANDOM.normal(0, 1, (6, 2, 3, 3)).astype(np.float32)},
    [2, 4, 5, 4],
    [2, 6, 3, 4],
)


@pytest.mark.parametrize("layer", [DENSE, WINDOWS], ids=["dense", "windows"])
def test_half_of_the_moments_count_by_gradients(layer: tuple) -> None:
    nodes, constants, given, made = layer
    model = canonicalize(ir.from_proto(model_of(nodes, constants, {"x": given}, {"y": made})))
    (unit,) = (each for each in find_units(model.graph, PRODUCTS) if each.weight is not None)
    feeds = [{"x": RANDOM.normal(0, 1, given).astype(np.float32)} for _ in range(2)]
    squares = [{"y": np.square(RANDOM.normal(0, 1, made)).astype(np.float32)} for _ in feeds]
    found = moments(model, [unit], feeds, {}, np.random.default_rng(0), squares)[unit.name].second

    columns = np.concatenate(
        [columns_of(unit, feed["x"], 1000, np.random.default_rng(0)) for feed in feeds], axis=1
    ).astype(np.float64)
    last = [np.moveaxis(each["y"], 1, -1) if len(made) == 4 else each["y"] for each in squares]
    weights = np.concatenate([each.reshape(-1, each.shape[-1]).mean(axis=1) for each in last]).astype(np.float64)
    even = np.einsum("gpi,gpj->gij", columns, columns) / columns.shape[1]
    weighed = np.einsum("p,gpi,gpj->gij", weights, columns, columns) / weights.sum()
    np.testing.assert_allclose(found, (even + weighed) / 2, rtol=1e-5, atol=1e-6)


def test_places_drawn_by_chance_have_their_own_weights() -> None:
    """Inputs and gradients are of the same positions where only some are taken."""
    nodes, constants, _, _ = DENSE
    many = 4096
    model = canonicalize(ir.from_proto(model_of(nodes, constants, {"x": [many, 4]}, {"y": [many, 3]})))
    (unit,) = (each for each in find_units(model.graph, PRODUCTS) if each.weight is not None)
    counts = np.arange(many) % 2
    x = np.where(counts[:, None] == 1, np.float32([1, 0, 0, 0]), np.float32([0, 1, 0, 0]))
    square = np.repeat(counts[:, None], 3, axis=1).astype(np.float32)
    found = moments(model, [unit], [{"x": x}] * 3, {}, np.random.default_rng(0), [{"y": square}] * 3)[unit.name]
    # Weighed, the second input never counts: half of the even share is left.
    assert found.second[0, 1, 1] == pytest.approx(0.25, abs=0.06)
    assert found.second[0, 0, 0] == pytest.approx(0.75, abs=0.06)


def test_without_gradients_every_position_counts_alike() -> None:
    nodes, constants, given, made = DENSE
    model = canonicalize(ir.from_proto(model_of(nodes, constants, {"x": given}, {"y": made})))
    (unit,) = (each for each in find_units(model.graph, PRODUCTS) if each.weight is not None)
    feeds = [{"x": RANDOM.normal(0, 1, given).astype(np.float32)}]
    nothing = moments(model, [unit], feeds, {}, np.random.default_rng(0), [{}])[unit.name].second
    zeros = moments(model, [unit], feeds, {}, np.random.default_rng(0), [{"y": np.zeros(made, np.float32)}])[unit.name]
    np.testing.assert_allclose(nothing[0], feeds[0]["x"].T @ feeds[0]["x"] / given[0], rtol=1e-5)
    np.testing.assert_array_equal(zeros.second, nothing)
