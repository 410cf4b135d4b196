"""Rounding weights so that the layer's output suffers least, not the weights.

Two ways to the same end, ``least trace(D H Dᵀ)``: error compensation rounds column after column and
corrects the columns that are still to come (GPTQ, arXiv:2210.17323); descent starts from a rounding
and moves single weights by one step as long as that helps (the objective of AdaRound,
arXiv:2004.10568, without its relaxation).
"""

from __future__ import annotations

import numpy as np

from convertkit.artifact import Array
from convertkit.quantization.patches import Moments

_DAMPING = 0.01
"""Share of H's mean diagonal that is added to it: directions that the data never takes stay near zero."""
_MOVES_PER_ROW = 0.5
"""Weights of a row that descent may move, as a share of its columns."""


def output_error(change: Array, moments: Moments) -> float:
    """``E[|D x|²]`` for a change of the weights, shape (groups, rows, columns)."""
    return float(np.einsum("gij,gij->", np.matmul(change.astype(np.float64), moments.second), change))


def layer_snr_db(rows: Array, rounded: Array, moments: Moments) -> float:
    """SNR of the layer's output, in dB, when ``rows`` are replaced by ``rounded``."""
    signal, noise = output_error(rows, moments), output_error(rounded - rows, moments)
    return float(10 * np.log10(max(signal, 1e-30) / max(noise, 1e-30)))


def compensated(rows: Array, scales: Array, moments: Moments, limits: tuple[int, int]) -> Array:
    """Integers by error compensation; ``scales`` broadcasts against ``rows`` (groups, rows, columns)."""
    return np.stack([_compensated(*parts, limits) for parts in zip(rows, scales, moments.second, strict=True)])


def _compensated(rows: Array, scales: Array, second: Array, limits: tuple[int, int]) -> Array:
    columns = rows.shape[1]
    order = np.argsort(-np.diag(second), kind="stable")  # the loudest inputs first: nothing corrects the last ones
    damped = _damped(second)[np.ix_(order, order)]
    inverse = np.linalg.inv(damped)
    upper = np.linalg.cholesky((inverse + inverse.T) / 2).T
    rest, steps = rows[:, order].astype(np.float64), np.broadcast_to(scales, rows.shape)[:, order]
    integers = np.zeros(rows.shape)
    for column in range(columns):
        step = steps[:, column]
        integers[:, column] = np.clip(np.rint(rest[:, column] / step), *limits)
        error = (rest[:, column] - integers[:, column] * step) / upper[column, column]
        rest[:, column:] -= np.outer(error, upper[column, column:])
    return integers[:, np.argsort(order, kind="stable")]


def descended(rows: Array, start: Array, scales: Array, moments: Moments, limits: tuple[int, int]) -> Array:
    """Integers that no single step improves any more, or that have been moved often enough."""
    parts = zip(rows, start, np.broadcast_to(scales, rows.shape), moments.second, strict=True)
    return np.stack([_descended(*each, limits) for each in parts])


def _descended(rows: Array, start: Array, scales: Array, second: Array, limits: tuple[int, int]) -> Array:
    second = _damped(second)
    integers, diagonal = start.astype(np.float64), np.diag(second)
    gradient = (integers * scales - rows) @ second
    every = np.arange(len(rows))
    for _ in range(max(4, int(rows.shape[1] * _MOVES_PER_ROW))):
        # Moving one weight by a step of ±s changes the error by ±2 s g + s² h.
        direction = np.where(gradient > 0, -1.0, 1.0)
        direction[(integers + direction < limits[0]) | (integers + direction > limits[1])] = 0.0
        change = 2 * direction * scales * gradient + (direction * scales) ** 2 * diagonal
        best = np.where(direction == 0.0, np.inf, change).argmin(axis=1)
        better = change[every, best] < -1e-12 * np.abs(diagonal).max()
        if not better.any():
            break
        moved, place = every[better], best[better]
        step = direction[moved, place] * scales[moved, place]
        integers[moved, place] += direction[moved, place]
        gradient[moved] += step[:, None] * second[place]
    return integers


def _damped(second: Array) -> Array:
    return second + np.eye(len(second)) * (_DAMPING * max(float(np.diag(second).mean()), 1e-12))
