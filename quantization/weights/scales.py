"""Which share of its full range rounds a row of weights best, for large weights in a small part of the time.

All shares are tried in float32, in tiles that stay in a core's cache; only those that its rounding cannot tell from the
best one are tried again in float64.  The answers are those of float64 throughout.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from convertkit.artifact import Array

SHRINKS = np.linspace(1.0, 0.5, 26)
"""Shares of the full range that the search for the best scale tries."""
_TILE = 1 << 15
"""Numbers of a tile: three buffers of them fit into a core's second cache."""
_CHUNK = 1 << 18
"""Numbers that a thread takes at a time."""
_PIECE = 1 << 20
"""Numbers of a row that are made float64 at a time."""
_MOST_THREADS = 4
_ROUNDING = 4e-7
"""How far float32 misplaces a number among the steps of its scale, as a share of the largest step."""
_SUMMING = 5e-4
"""How far float32 misses a sum over a tile, as a share of it."""


def in_threads(work: Callable[[slice], None], rows: int, columns: int) -> None:
    """Call ``work`` with slices that together are all rows, on all processors where there are many numbers."""
    step = max(1, _CHUNK // max(columns, 1))
    slices = [slice(first, min(first + step, rows)) for first in range(0, rows, step)]
    if len(slices) == 1:
        work(slices[0])
        return
    with ThreadPoolExecutor(min(os.cpu_count() or 1, _MOST_THREADS)) as pool:
        list(pool.map(work, slices))


def best_shrinks(rows: Array, scales: Array, limits: tuple[int, int]) -> Array:
    """For each row the first index of the scales with the least squared error of rounding to nearest.

    ``rows`` are (n, columns), ``scales`` float64 of (shares, n), the largest first.
    """
    estimates = _estimates(rows, scales, limits)
    misplaced = _ROUNDING * max(map(abs, limits)) * scales
    columns = rows.shape[1]
    doubt = 2 * misplaced * np.sqrt(columns * estimates) + columns * misplaced**2 + _SUMMING * estimates
    possible = estimates - doubt <= (estimates + doubt).min(axis=0)
    found = possible.argmax(axis=0)
    open_rows = np.nonzero(possible.sum(axis=0) > 1)[0]
    if open_rows.size:
        found[open_rows] = _decided(rows[open_rows], scales[:, open_rows], possible[:, open_rows], limits)
    return np.asarray(found)


def _estimates(rows: Array, scales: Array, limits: tuple[int, int]) -> Array:
    """Squared errors in float32, (shares, n)."""
    inverse = (1 / scales).astype(np.float32)
    low, high = np.float32(limits[0]), np.float32(limits[1])
    errors = np.zeros(scales.shape)
    for down, across in _tiles(*rows.shape):
        tile = np.ascontiguousarray(rows[down, across], np.float32)
        steps, whole = np.empty_like(tile), np.empty_like(tile)
        for place, factors in enumerate(inverse[:, down, None]):
            np.multiply(tile, factors, out=steps)
            np.rint(steps, out=whole)
            np.clip(whole, low, high, out=whole)
            np.subtract(steps, whole, out=steps)
            errors[place, down] += np.einsum("ij,ij->i", steps, steps)
    return np.asarray(errors * scales**2)


def _tiles(rows: int, columns: int) -> Iterator[tuple[slice, slice]]:
    across = max(1, min(columns, _TILE))
    down = max(1, _TILE // across)
    for first in range(0, rows, down):
        for left in range(0, columns, across):
            yield slice(first, first + down), slice(left, left + across)


def _decided(rows: Array, scales: Array, possible: Array, limits: tuple[int, int]) -> Array:
    """The same for a few rows in float64, among the shares that are ``possible``."""
    best, least = np.zeros(len(rows), np.intp), np.full(len(rows), np.inf)
    for place, asked in enumerate(possible):
        if not asked.any():
            continue
        error = _error(rows[asked], scales[place, asked, None], limits)
        better = error < least[asked]
        chosen = np.nonzero(asked)[0][better]
        best[chosen], least[chosen] = place, error[better]
    return best


def _error(rows: Array, scales: Array, limits: tuple[int, int]) -> Array:
    pieces: Sequence[Array] = [
        np.asarray(rows[:, left : left + _PIECE], np.float64) for left in range(0, rows.shape[1], _PIECE)
    ]
    parts = [((np.clip(np.rint(piece / scales), *limits) * scales - piece) ** 2).sum(axis=1) for piece in pieces]
    return np.asarray(np.sum(parts, axis=0))
