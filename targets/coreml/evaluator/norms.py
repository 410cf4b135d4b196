"""Normalizations and softmax.

Source: coremltools, mil/ops/defs, normalization.py and activation.py.
"""

from __future__ import annotations

import numpy as np

from convertkit.artifact import Array
from convertkit.targets.coreml.evaluator.moves import numbers
from convertkit.targets.coreml.evaluator.table import Table

norms = Table()


@norms.computes("softmax")
def _softmax(*, x: Array, axis: Array | None = None) -> Array:
    at = -1 if axis is None else int(axis)
    powers = np.exp(x - x.max(at, keepdims=True))
    return np.asarray(powers / powers.sum(at, keepdims=True))


def _channels(value: Array, rank: int) -> Array:
    return value.reshape(-1, *[1] * (rank - 2))


@norms.computes("batch_norm")
def _batch_norm(
    *,
    x: Array,
    mean: Array,
    variance: Array,
    gamma: Array | None = None,
    beta: Array | None = None,
    epsilon: Array | None = None,
) -> Array:
    small = np.float32(1e-5) if epsilon is None else epsilon
    unit = (x - _channels(mean, x.ndim)) / np.sqrt(_channels(variance, x.ndim) + small)
    scaled = unit if gamma is None else unit * _channels(gamma, x.ndim)
    return np.asarray(scaled if beta is None else scaled + _channels(beta, x.ndim))


def _normalized(x: Array, axes: tuple[int, ...], epsilon: Array | np.float32) -> Array:
    centred = x - x.mean(axes, keepdims=True)
    return np.asarray(centred / np.sqrt((centred * centred).mean(axes, keepdims=True) + epsilon))


@norms.computes("instance_norm")
def _instance_norm(
    *, x: Array, gamma: Array | None = None, beta: Array | None = None, epsilon: Array | None = None
) -> Array:
    unit = _normalized(x, tuple(range(2, x.ndim)), np.float32(1e-5) if epsilon is None else epsilon)
    scaled = unit if gamma is None else unit * _channels(gamma, x.ndim)
    return scaled if beta is None else scaled + _channels(beta, x.ndim)


@norms.computes("layer_norm")
def _layer_norm(
    *,
    x: Array,
    axes: Array | None = None,
    gamma: Array | None = None,
    beta: Array | None = None,
    epsilon: Array | None = None,
) -> Array:
    chosen = tuple(range(x.ndim)) if axes is None else tuple(axis % x.ndim for axis in numbers(axes))
    unit = _normalized(x, chosen, np.float32(1e-5) if epsilon is None else epsilon)
    shape = [size if axis in chosen else 1 for axis, size in enumerate(x.shape)]
    scaled = unit if gamma is None else unit * gamma.reshape(shape)
    return scaled if beta is None else scaled + beta.reshape(shape)


@norms.computes("l2_norm")
def _l2_norm(*, x: Array, epsilon: Array | None = None) -> Array:
    small = np.float32(1e-6) if epsilon is None else epsilon
    return np.asarray(x / np.sqrt((x * x).sum((-3, -2, -1), keepdims=True) + small))


@norms.computes("local_response_norm")
def _local_response_norm(*, x: Array, size: Array, alpha: Array, beta: Array, k: Array) -> Array:
    count = int(size)
    before = (count - 1) // 2
    squares = np.pad(x * x, [(0, 0), (before, count - 1 - before), *[(0, 0)] * (x.ndim - 2)])
    total = sum(squares[:, place : place + x.shape[1]] for place in range(count))
    return np.asarray(x / (k + alpha / count * total) ** beta)
