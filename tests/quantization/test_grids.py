"""Inputs on a grid: pixels, recorded integers and bits are not rounded."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from convertkit.onnx.canonical import canonicalize
from convertkit.profile import QuantProfile
from convertkit.quantization.calibrate.grids import Grid, grid_of, grids
from convertkit.quantization.calibrate.histogram import Statistics
from convertkit.quantization.calibrate.ranges import Affine, affine
from convertkit.quantization.search.plan import Plan, Ranges, Traits
from tests.quantization.models import small_cnn

PIXELS = np.arange(0, 251, dtype=np.float32)
RECORDED = (np.arange(-128, 127, dtype=np.float32) - np.float32(83)) * np.float32(0.5847029)


def values(array: np.ndarray) -> np.ndarray:
    return np.unique(array.astype(np.float32))


def on_its_grid(array: np.ndarray, *, symmetric: bool) -> tuple[Grid, Affine]:
    """The grid of what was seen, and the integers that its range gives."""
    grid = grid_of(values(array))
    assert grid is not None
    span = grid.range(float(array.min()), float(array.max()), 255, symmetric=symmetric)
    assert span is not None
    return grid, affine(span, "int8", symmetric=symmetric)


@pytest.mark.parametrize(
    "array",
    [PIXELS, PIXELS[::3] / np.float32(255), RECORDED, RECORDED[[3, 5, 8, 60, 200, 254]], np.float32([0, 1, 2])],
    ids=["pixels", "some-pixels-to-1", "recorded", "few-of-them", "three-kinds"],
)
def test_what_lies_on_a_grid_is_not_rounded(array: np.ndarray) -> None:
    grid, chosen = on_its_grid(array, symmetric=False)
    assert grid.fits(chosen.scale)
    np.testing.assert_allclose(chosen.round_trip(array), array, rtol=1e-6, atol=1e-6)
    plain = affine((float(array.min()), float(array.max())), "int8", symmetric=False)
    assert plain.scale >= chosen.scale * 0.5


@pytest.mark.parametrize("array", [PIXELS[:100], np.float32([-3, 0, 2])], ids=["dark-pixels", "signed"])
def test_ranges_around_zero_hold_a_grid(array: np.ndarray) -> None:
    _, chosen = on_its_grid(array, symmetric=True)
    np.testing.assert_allclose(chosen.round_trip(array), array, atol=1e-5)


def test_pixels_from_minus_one_to_one_do_not_lie_on_ties() -> None:
    pixels = np.arange(256, dtype=np.float32) / np.float32(127.5) - np.float32(1)
    grid, chosen = on_its_grid(pixels, symmetric=False)
    assert grid.odd
    error = chosen.round_trip(pixels) - pixels
    plain = affine((-1.0, 1.0), "int8", symmetric=False).round_trip(pixels) - pixels
    assert float(np.square(error).mean()) < 0.4 * float(np.square(plain).mean())
    assert chosen.range[0] <= -1.0 + 1e-6
    assert chosen.range[1] >= 1.0 - 1e-6


@pytest.mark.parametrize(
    "array",
    [
        np.random.default_rng(0).normal(0, 1, 200),
        np.float32([0, 1]),
        np.arange(400),
        np.float32([0, 1, np.nan]),
        np.float32([0.3, 1.3, 2.3, 4.3]),
    ],
    ids=["noise", "two-values", "too-many", "no-number", "beside-zero"],
)
def test_other_values_have_none(array: np.ndarray) -> None:
    assert grid_of(values(array)) is None


def test_a_scale_far_above_the_steps_does_not_hold_the_grid() -> None:
    grid = Grid(1e-5)
    assert grid.fits(1e-5)
    assert grid.fits(5e-6)
    assert not grid.fits(0.16)
    assert not grid.fits(1.5e-5)


def test_a_range_that_others_share_is_not_the_grids() -> None:
    seen = Statistics(low=0.0, high=100.0, samples=1)
    seen.histogram.add(np.linspace(0, 100, 1000, dtype=np.float32))
    profile = QuantProfile(name="test", operators={}, activation="int8", symmetric=False)
    ranges = Ranges({"x": seen}, profile, Traits(grids={"x": Grid(1.0)}))
    plan = Plan(frozenset(), "minmax")
    assert ranges.of(("x",), lambda: seen, plan) == (0.0, 127.5)
    assert ranges.of(("x", "other"), lambda: seen, plan) == (0.0, 100.0)


def test_inputs_are_looked_at_sample_by_sample() -> None:
    graph = canonicalize(ir.from_proto(small_cnn())).graph
    random = np.random.default_rng(0)
    pixels = [{"x": random.integers(0, 200, (1, 3, 12, 12)).astype(np.float32)} for _ in range(3)]
    assert grids(graph, pixels)["x"].step == 1.0
    assert grids(graph, [*pixels, {"x": random.normal(0, 1, (1, 3, 12, 12)).astype(np.float32)}]) == {}
    assert grids(graph, [{"x": feed["x"].astype(np.float64)} for feed in pixels]) == {}


def test_a_grid_of_too_many_steps_has_no_range() -> None:
    assert Grid(1.0).range(-200.0, 200.0, 255, symmetric=False) is None
    assert Grid(1.0).range(0.0, 200.0, 255, symmetric=True) is None
    assert Grid(1.0, odd=True).range(-255.0, 255.0, 255, symmetric=False) is not None
    assert Grid(1.0, odd=True).range(-257.0, 257.0, 255, symmetric=False) is None
