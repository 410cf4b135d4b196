"""What pruning is made of: the largest of many, and inverses by halves."""

from __future__ import annotations

import numpy as np
import pytest

from convertkit.quantization.pruning.patterns import largest
from convertkit.quantization.pruning.reconstruct import Layer, inverted

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("count", [0, 1, 7, 300, 999, 1000])
def test_the_largest_are_kept_and_of_equal_ones_the_first(count: int) -> None:
    scores = np.round(RNG.normal(size=(2, 4, 125)), 1)
    expected = np.zeros(scores.size, bool)
    expected[np.argsort(-scores.ravel(), kind="stable")[:count]] = True
    assert np.array_equal(largest(scores, count), expected.reshape(scores.shape))


@pytest.mark.parametrize("shape", [(1, 5, 5), (3, 256, 256), (2, 577, 577)])
def test_inverses_are_those_of_linear_algebra(shape: tuple[int, ...]) -> None:
    x = RNG.normal(size=(shape[0], shape[1], 2 * shape[1]))
    matrices = np.matmul(x, x.swapaxes(1, 2)) / x.shape[2] + 0.01 * np.eye(shape[1])
    found = inverted(matrices)
    assert np.allclose(found, np.linalg.inv(matrices), rtol=1e-9, atol=1e-9)
    assert np.array_equal(found, inverted(matrices))


def test_powers_that_roundings_made_negative_are_none() -> None:
    """Of inputs that hardly differ from a large mean."""
    second = np.array([[[0.01, 0.02, 0.0], [0.02, -0.005, 0.01], [0.0, 0.01, 0.02]]])
    layer = Layer(RNG.normal(size=(1, 2, 3)), second)
    assert np.isfinite(layer.rows).all()
    assert np.linalg.eigvalsh(layer.second)[0, 0] > 0
