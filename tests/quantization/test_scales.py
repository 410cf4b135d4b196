"""The quick search for the best scale gives the answers of the plain one in float64."""

from __future__ import annotations

import numpy as np
import pytest

from convertkit.artifact import Array
from convertkit.quantization.weights import scales
from convertkit.quantization.weights.blocks import quantize_blocks
from convertkit.quantization.weights.integers import best_scales, quantize_weight
from convertkit.quantization.weights.scales import SHRINKS, best_shrinks


def _plain(rows: Array, tried: Array, limits: tuple[int, int]) -> Array:
    real = rows.astype(np.float64)
    errors = [((np.clip(np.rint(real / s[:, None]), *limits) * s[:, None] - real) ** 2).sum(axis=1) for s in tried]
    return np.argmin(errors, axis=0)


def _rows(kind: str, shape: tuple[int, int]) -> Array:
    rows = np.random.default_rng(len(kind)).standard_normal(shape).astype(np.float32)
    match kind:
        case "heavy":
            return rows**3
        case "on a grid":
            return np.round(rows * 20) / np.float32(20)
        case "sparse":
            return np.where(np.abs(rows) < 1, np.float32(0), rows)
        case "of one size":
            return np.sign(rows) * np.float32(0.37)
    return rows


@pytest.mark.parametrize("limits", [(-127, 127), (-8, 7)])
@pytest.mark.parametrize("shape", [(200, 64), (40, 1000), (2, 100_000)])
@pytest.mark.parametrize("kind", ["normal", "heavy", "on a grid", "sparse", "of one size"])
def test_the_choice_is_that_of_float64(kind: str, shape: tuple[int, int], limits: tuple[int, int]) -> None:
    rows = _rows(kind, shape)
    full = np.abs(rows).max(axis=1).astype(np.float64) / limits[1]
    tried = np.multiply.outer(SHRINKS, full)
    np.testing.assert_array_equal(best_shrinks(rows, tried, limits), _plain(rows, tried, limits))


def test_choices_that_float32_cannot_tell_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With estimates that are wrong by as much as float32 may be, the answers stay."""
    rows, exact = _rows("normal", (3000, 64)), scales._estimates
    tried = np.multiply.outer(SHRINKS, np.abs(rows).max(axis=1).astype(np.float64) / 7)
    noise = np.random.default_rng(1)
    monkeypatch.setattr(
        scales, "_estimates", lambda *given: exact(*given) * (1 + 4e-4 * noise.uniform(-1, 1, tried.shape))
    )
    np.testing.assert_array_equal(best_shrinks(rows, tried, (-7, 7)), _plain(rows, tried, (-7, 7)))


def test_errors_of_nothing_but_float32_rounding_decide_nothing() -> None:
    """Rows lie on the grids of both shares, 2 and 3 steps apart: what float32 makes of them differs, float64 ties."""
    noise = np.random.default_rng(0)
    steps, places = noise.uniform(0.001, 1, 200), noise.integers(-42, 43, (200, 64))
    rows = (places * 1.8 * steps[:, None]).astype(np.float32)
    tried = np.multiply.outer([0.9, 0.6], steps)
    np.testing.assert_array_equal(best_shrinks(rows, tried, (-127, 127)), _plain(rows, tried, (-127, 127)))


def test_a_row_of_zeros_keeps_the_full_range() -> None:
    assert best_shrinks(np.zeros((1, 8), np.float32), np.full((26, 1), 1e-30), (-127, 127)) == [0]


@pytest.mark.parametrize("axis", [None, 0, 1, 2])
def test_weights_of_any_rank_in_several_parts(axis: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    weight = _rows("normal", (60, 70)).reshape(20, 14, 15)
    whole = quantize_weight(weight, axis, (-7, 7), best_scales(weight, axis, (-7, 7)))
    monkeypatch.setattr(scales, "_CHUNK", 700)
    monkeypatch.setattr(scales, "_TILE", 100)
    monkeypatch.setattr(scales, "_PIECE", 50)
    parts = quantize_weight(weight, axis, (-7, 7), best_scales(weight, axis, (-7, 7)))
    np.testing.assert_array_equal(whole.scales, parts.scales)
    np.testing.assert_array_equal(whole.integers, parts.integers)
    assert float(np.abs(whole.real() - weight).max()) < float(np.abs(weight).max())


@pytest.mark.parametrize("axis", [0, 1])
def test_blocks(axis: int, monkeypatch: pytest.MonkeyPatch) -> None:
    array = _rows("heavy", (96, 64))
    monkeypatch.setattr(scales, "_CHUNK", 5000)
    found = quantize_blocks(array, axis, 32, (-7, 7))
    rows = np.moveaxis(array, axis, 1).reshape(-1, 32)
    tried = np.multiply.outer(SHRINKS, np.abs(rows).max(axis=1).astype(np.float64) / 7)
    best = np.take_along_axis(tried, _plain(rows, tried, (-7, 7))[None], 0)[0].astype(np.float32)
    np.testing.assert_array_equal(np.moveaxis(found.scales, axis, 1).reshape(-1), best)
    steps = np.clip(np.rint(rows / best[:, None].astype(np.float64)), -7, 7)
    np.testing.assert_array_equal(np.moveaxis(found.integers, axis, 1).reshape(-1, 32), steps)
