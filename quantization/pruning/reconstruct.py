"""The sparse weights that come closest to a layer's output on calibration data.

For ``y = T x`` and sparse ``W`` the error is ``trace((W − T) H (W − T)ᵀ)`` with ``H`` the second moment of ``x``.  The
support is found by the alternating direction method of multipliers: one iterate minimises the error, the other is
sparse, and a penalty that grows draws both together while the density falls.  Conjugate gradients then fit
the weights that stay.
Source of the splitting for layers: ALPS, arXiv:2406.07831.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from convertkit.artifact import Array

DAMPING = 0.01
"""Share of H's mean diagonal that is added to it: directions that the data never takes stay as they are."""
_PENALTY = (0.01, 0.3)
"""Of inputs of unit power: at the first density, and at the last."""
_FIRST_DENSITY = 0.7
_GROWTH = (1.5, 3.0)
"""By how much the penalty grows at the wanted density, until the support no longer changes."""

_WHOLE = 256
"""Rows of matrices that are inverted at once."""

Choose = Callable[[Array, float], Array]
"""Scores (parts, rows, columns) and a density give the mask of what stays."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to search: steps of density on the way, iterations at each, at the end, and of the last fit."""

    steps: int = 10
    iterations: int = 4
    last: int = 12
    fit: int = 30


def _positive(second: Array) -> Array:
    """Moments (parts, columns, columns) without what is negative, where roundings of large means made powers so."""
    if (np.diagonal(second, axis1=1, axis2=2) >= 0).all():
        return second
    values, vectors = np.linalg.eigh(second)
    return np.asarray(np.matmul(vectors * np.maximum(values, 0)[:, None, :], vectors.swapaxes(1, 2)))


class Layer:
    """A layer whose inputs have unit power: rows (parts, rows, columns) and the damped second moment."""

    def __init__(self, rows: Array, second: Array, damping: float = DAMPING) -> None:
        second = _positive(second)
        diagonal = np.diagonal(second, axis1=1, axis2=2)
        mean = np.maximum(diagonal.mean(axis=1, keepdims=True), 1e-12)
        self._scale = np.sqrt(diagonal + damping * mean)
        size = second.shape[1]
        damped = second + np.eye(size) * (damping * mean)[:, :, None]
        self.second = damped / (self._scale[:, :, None] * self._scale[:, None, :])
        self.rows = rows * self._scale[:, None, :]
        self._pulled = np.matmul(self.rows, self.second)

    @property
    def power(self) -> float:
        """Of the output, summed over rows."""
        return float(np.sum(self._pulled * self.rows))

    def error(self, rows: Array) -> float:
        """Power of the output's error where ``rows``, of unit power, stand for the layer's own."""
        change = rows - self.rows
        return float(np.sum(np.matmul(change, self.second) * change))

    def real(self, rows: Array) -> Array:
        """Rows of unit power as weights."""
        return np.asarray(rows / self._scale[:, None, :])

    def path(self, densities: Sequence[float], choose: Choose, iterations: int) -> list[Array]:
        """Masks for falling densities, each found from the one before."""
        penalties = np.geomspace(*_PENALTY, len(densities))
        search = _Search(self, choose)
        return [
            search.run(density, penalty, iterations)
            for density, penalty in zip(densities, penalties, strict=True)
        ]  # fmt: skip

    def sparse(self, density: float, choose: Choose, effort: Effort) -> Array:
        """The rows, of unit power, at one density."""
        first = max(_FIRST_DENSITY, density)
        search = _Search(self, choose)
        densities, penalties = np.geomspace(first, density, effort.steps), np.geomspace(*_PENALTY, effort.steps)
        mask = np.ones(self.rows.shape, bool)
        for step, penalty in zip(densities, penalties, strict=True):
            mask = search.run(float(step), float(penalty), effort.iterations)
        for growth in _GROWTH:
            mask = search.run(density, _PENALTY[1] * growth, effort.last)
        return self.fitted(mask, effort.fit)

    def fitted(self, mask: Array, iterations: int) -> Array:
        """The best rows on a support, by conjugate gradients for all rows at once."""
        found = np.where(mask, self.rows, 0.0)
        left = np.where(mask, self._pulled - np.matmul(found, self.second), 0.0)
        direction, norm = left, np.sum(left * left, axis=2, keepdims=True)
        enough = 1e-12 * np.maximum(np.sum(self._pulled**2, axis=2, keepdims=True), 1e-30)
        for _ in range(iterations):
            if (norm <= enough).all():
                break
            moved = np.where(mask, np.matmul(direction, self.second), 0.0)
            step = norm / np.maximum(np.sum(direction * moved, axis=2, keepdims=True), 1e-30)
            found, left = found + step * direction, left - step * moved
            previous, norm = norm, np.sum(left * left, axis=2, keepdims=True)
            direction = left + direction * (norm / np.maximum(previous, 1e-30))
        return found


class _Search:
    """The state of the method: the sparse iterate and the multipliers."""

    def __init__(self, layer: Layer, choose: Choose) -> None:
        self._layer, self._choose = layer, choose
        self._sparse, self._multipliers = layer.rows, np.zeros_like(layer.rows)

    def run(self, density: float, penalty: float, iterations: int) -> Array:
        """Iterate at one density and penalty; the mask of what stays."""
        layer = self._layer
        inverse = inverted(layer.second + penalty * np.eye(layer.second.shape[1]))
        mask = np.ones(layer.rows.shape, bool)
        for _ in range(iterations):
            dense = np.matmul(layer._pulled + penalty * self._sparse - self._multipliers, inverse)
            shifted = dense + self._multipliers / penalty
            mask = self._choose(np.abs(shifted), density)
            self._sparse = np.where(mask, shifted, 0.0)
            self._multipliers = self._multipliers + penalty * (dense - self._sparse)
        return mask


def inverted(matrices: Array) -> Array:
    """The inverses of symmetric positive definite matrices (…, n, n): large ones by halves, at half of LU's work.

    Source: inversion by the Schur complement of a half, 4/3 n³ multiply-adds in matrix products.
    """
    size = matrices.shape[-1]
    if size <= _WHOLE:
        return np.asarray(np.linalg.inv(matrices))
    half = size // 2
    first = inverted(matrices[..., :half, :half])
    beside = matrices[..., :half, half:]
    pulled = np.matmul(first, beside)
    rest = inverted(matrices[..., half:, half:] - np.matmul(beside.swapaxes(-1, -2), pulled))
    corner = np.matmul(pulled, rest)
    made = np.empty_like(matrices)
    made[..., :half, :half] = first + np.matmul(corner, pulled.swapaxes(-1, -2))
    made[..., :half, half:] = -corner
    made[..., half:, :half] = -corner.swapaxes(-1, -2)
    made[..., half:, half:] = rest
    return made


def toward_original(rows: Array, second: Array, cross: Array, damping: float = DAMPING) -> Array:
    """Dense rows that make of the inputs at hand what ``rows`` made of the original ones.

    ``second`` is E[x xᵀ] of the inputs at hand, ``cross`` E[o xᵀ] with the original ones.
    """
    mean = np.maximum(np.diagonal(second, axis1=1, axis2=2).mean(axis=1), 1e-12)
    damped = second + np.eye(second.shape[1]) * (damping * mean)[:, None, None]
    missing = np.matmul(rows, cross - second)
    return np.asarray(rows + np.linalg.solve(damped, missing.transpose(0, 2, 1)).transpose(0, 2, 1))
