"""Weights of Fourier transforms: what is a real number, or nothing, is exactly that."""

from __future__ import annotations

import numpy as np
import pytest

from convertkit.onnx.fourier import transform, waves


@pytest.mark.parametrize("points", [16, 30, 48, 400, 1000])
def test_the_first_and_the_middle_bin_of_real_samples_have_no_imaginary_part(points: int) -> None:
    weights = transform(points, points, 1, inverse=False, onesided=True)
    assert weights.shape == (points // 2 + 1, 2, points, 1)
    assert not weights[[0, -1], 1].any()
    turns = np.outer(np.arange(points // 2 + 1), np.arange(points)) * 2 * np.pi / points
    np.testing.assert_allclose(weights[:, 0, :, 0], np.cos(turns), atol=1e-7)
    np.testing.assert_allclose(weights[:, 1, :, 0], -np.sin(turns), atol=1e-7)


def test_small_sines_of_long_transforms_stay() -> None:
    found = waves(4096, 4096, 1, inverse=False, onesided=True)[:, 1, :, 0]
    turns = np.outer(np.arange(2049), np.arange(4096)) % 2048
    assert np.array_equal(found == 0, turns == 0)
