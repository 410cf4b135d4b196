"""The inputs on which models break."""

from __future__ import annotations

from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray[Any, Any]]
SHAPE = (4, 16)


def edges() -> Arrays:
    """Float32 inputs of (4, 16) by name."""
    rng = np.random.default_rng(0)
    noise = rng.standard_normal(SHAPE)
    made = {
        "noise": noise,
        "zeros": np.zeros(SHAPE),
        "signed zeros": np.where(np.arange(16) % 2, -0.0, 0.0) + np.zeros(SHAPE) * -1,
        "ones": np.ones(SHAPE),
        "constant": np.full(SHAPE, 0.7),
        "1e-6": noise * 1e-6,
        "1e-3": noise * 1e-3,
        "half silent": np.where(np.arange(4)[:, None] < 2, 0.0, noise),
        "negative": -np.abs(noise),
        "large": noise * 1e3,
        "ties": np.resize(np.arange(-16, 16) / 4, SHAPE),
        "sparse": np.where(rng.random(SHAPE) < 0.1, noise, 0.0),
    }
    return {name: array.astype(np.float32) for name, array in made.items()}
