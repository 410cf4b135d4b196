"""Rounding weights so that the layer's output suffers least, not the weights.

Two ways to the same end, ``least trace(D H Dᵀ)``: error compensation rounds column after column and
corrects the columns that are still to come (GPTQ, arXiv:2210.17323); descent starts from a rounding
and moves single weights by one step as long as that helps (the objective of AdaRound,
arXiv:2004.10568, without its relaxation).
"""

from __future__ import annotations

import numpy as np

from convertkit.artifact import Array
from convertkit.quantization.weights.patches import Moments

_DAMPING = 0.01
"""Share of H's mean diagonal that is added to it: directions that the data never takes stay near zero."""
_MOVES_PER_ROW = 0.5
"""Weights of a row that descent may move, as a share of its columns."""
_DIRECT = 48
"""Triangles up to this size are inverted directly."""
_BLOCK = 64
"""Columns whose corrections reach the columns behind them in one product."""


def output_error(change: Array, moments: Moments) -> float:
    """``E[|D x|²]`` for a change of the weights, shape (groups, rows, columns)."""
    return float(np.sum(np.matmul(change.astype(np.float32), moments.second.astype(np.float32)) * change))


def layer_snr_db(rows: Array, rounded: Array, moments: Moments) -> float:
    """SNR of the layer's output, in dB, when ``rows`` are replaced by ``rounded``."""
    signal, noise = output_error(rows, moments), output_error(rounded - rows, moments)
    return float(10 * np.log10(max(signal, 1e-30) / max(noise, 1e-30)))


def compensated(rows: Array, scales: Array, moments: Moments, limits: tuple[int, int]) -> Array:
    """Integers by error compensation; ``scales`` broadcasts against ``rows`` (groups, rows, columns)."""
    second = _damped(moments.second)
    # The loudest inputs first: nothing corrects the last ones.
    order = np.argsort(-np.diagonal(second, axis1=1, axis2=2), axis=1, kind="stable")
    upper = ordered_inverse(moments.second, order)
    rest = np.take_along_axis(rows.astype(np.float64), order[:, None, :], 2)
    steps = np.take_along_axis(np.broadcast_to(scales, rows.shape), order[:, None, :], 2)
    integers, errors = np.zeros(rows.shape), np.zeros(rows.shape)
    for first in range(0, rows.shape[2], _BLOCK):
        last = min(first + _BLOCK, rows.shape[2])
        for column in range(first, last):
            step = steps[:, :, column]
            integers[:, :, column] = np.clip(np.rint(rest[:, :, column] / step), *limits)
            error = (rest[:, :, column] - integers[:, :, column] * step) / upper[:, column, column, None]
            rest[:, :, column:last] -= error[:, :, None] * upper[:, None, column, column:last]
            errors[:, :, column] = error
        rest[:, :, last:] -= np.matmul(errors[:, :, first:last], upper[:, first:last, last:])
    return np.take_along_axis(integers, np.argsort(order, axis=1, kind="stable")[:, None, :], 2)


def ordered_inverse(second: Array, order: Array) -> Array:
    """Upper Cholesky factor of H's inverse, its columns in ``order`` (groups, columns): what corrects what."""
    damped = _damped(second)
    ordered = np.take_along_axis(np.take_along_axis(damped, order[:, :, None], 1), order[:, None, :], 2)
    # H = U Uᵀ with U upper comes from the factor of H read backwards; then H⁻¹ = U⁻ᵀ U⁻¹.
    lower = np.linalg.cholesky(np.ascontiguousarray(ordered[:, ::-1, ::-1]))
    return np.ascontiguousarray(_lower_inverse(lower)[:, ::-1, ::-1])


def _lower_inverse(lower: Array) -> Array:
    """Inverse of lower triangular matrices (groups, columns, columns), by halves: it is nearly all products."""
    size = lower.shape[1]
    if size <= _DIRECT:
        return np.asarray(np.tril(np.linalg.inv(lower)))
    half = size // 2
    first, last = _lower_inverse(lower[:, :half, :half]), _lower_inverse(lower[:, half:, half:])
    inverse = np.zeros_like(lower)
    inverse[:, :half, :half], inverse[:, half:, half:] = first, last
    inverse[:, half:, :half] = -np.matmul(last, np.matmul(lower[:, half:, :half], first))
    return inverse


def descended(rows: Array, start: Array, scales: Array, moments: Moments, limits: tuple[int, int]) -> Array:
    """Integers that no single step improves any more, or that have been moved often enough."""
    second, steps = _damped(moments.second), np.broadcast_to(scales, rows.shape)
    integers, diagonal = start.astype(np.float64), np.diagonal(second, axis1=1, axis2=2)[:, None, :]
    gradient = np.matmul(integers * steps - rows, second)
    curvature = steps**2 * diagonal
    tiny = -1e-12 * float(np.abs(diagonal).max())
    for _ in range(max(4, int(rows.shape[2] * _MOVES_PER_ROW))):
        # Moving one weight by a step of ±s changes the error by ±2 s g + s² h.
        direction = np.where(gradient > 0, -1.0, 1.0)
        moved = integers + direction
        change = np.where((moved < limits[0]) | (moved > limits[1]), np.inf, curvature - 2 * steps * np.abs(gradient))
        best = change.argmin(axis=2)
        group, row = np.nonzero(np.take_along_axis(change, best[:, :, None], 2)[:, :, 0] < tiny)
        if group.size == 0:
            break
        place = best[group, row]
        step = direction[group, row, place] * steps[group, row, place]
        integers[group, row, place] += direction[group, row, place]
        gradient[group, row] += step[:, None] * second[group, place]
    return integers


def _damped(second: Array) -> Array:
    diagonal = np.maximum(np.diagonal(second, axis1=1, axis2=2).mean(axis=1), 1e-12)
    return np.asarray(second + np.eye(second.shape[1]) * (_DAMPING * diagonal)[:, None, None], np.float64)
