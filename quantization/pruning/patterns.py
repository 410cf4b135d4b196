"""Which weights may stay: a share of a layer's, or N of M neighbours along the summed channels."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from convertkit.artifact import Array
from convertkit.errors import UsageError

AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Pattern:
    """``keep`` of ``of`` neighbours, or any weights but ``share`` of all where ``of`` is 0."""

    share: float
    keep: int = 0
    of: int = 0


def pattern(text: str) -> Pattern | None:
    """Parse ``0.5`` or ``2:4``, None for ``auto``; ``UsageError`` for anything else."""
    if text == AUTO:
        return None
    if match := re.fullmatch(r"(\d+):(\d+)", text):
        keep, of = map(int, match.groups())
        if 0 < keep < of:
            return Pattern(1 - keep / of, keep, of)
    elif re.fullmatch(r"0?\.\d+", text) and 0 < float(text) < 1:
        return Pattern(float(text))
    raise UsageError(f"--prune {text}: expected a share between 0 and 1, auto, or N:M such as 2:4")


def largest(scores: Array, count: int) -> Array:
    """True for the ``count`` largest entries of ``scores``, of any shape; the first ones where some are equal."""
    flat = scores.ravel()
    if not 0 < count < flat.size:
        return np.full(scores.shape, count > 0)
    least = np.partition(flat, flat.size - count)[flat.size - count]
    kept = np.asarray(flat > least)
    equal = np.flatnonzero(flat == least)
    kept[equal[: count - int(kept.sum())]] = True
    return kept.reshape(scores.shape)


def neighbours(scores: Array, wanted: Pattern, taps: int) -> Array:
    """True for the ``keep`` largest of every ``of`` input channels, at every tap of the kernel.

    ``scores`` is (parts, rows, columns), a column for each channel and tap, taps innermost.  Sparse kernels read the
    channels of one tap side by side.
    """
    parts, rows, columns = scores.shape
    blocks = scores.reshape(parts, rows, columns // (taps * wanted.of), wanted.of, taps)
    ranks = blocks.argsort(axis=3, kind="stable").argsort(axis=3, kind="stable")
    return np.asarray((ranks >= wanted.of - wanted.keep).reshape(scores.shape))
