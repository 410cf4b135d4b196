"""Least squares whose answers are not below 0."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt


def nonnegative(rows: npt.NDArray[np.float64], values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The costs, none below 0, with which ``rows @ costs`` is next to ``values``, exactly; for a few columns.

    Of the best answer some costs are 0, and the others solve the problem without bounds: every choice is tried.
    """
    columns = rows.shape[1]
    best, least = np.zeros(columns), float(values @ values)
    for size in range(1, columns + 1):
        for kept in itertools.combinations(range(columns), size):
            part = np.linalg.lstsq(rows[:, kept], values)[0]
            rest = rows[:, kept] @ part - values
            if part.min() >= 0 and float(rest @ rest) < least:
                best, least = np.zeros(columns), float(rest @ rest)
                best[list(kept)] = part
    return best
