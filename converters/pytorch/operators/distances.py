"""Distances between rows, by differences as torch takes them."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from convertkit.errors import Unsupported

_MOST_ROWS = 64
"""Of which all pairs are taken: each row is a few operators."""


def distances(x: Tensor, y: Tensor, p: float = 2.0, compute_mode: int | None = None) -> Tensor:
    """``aten::cdist`` of few rows, by differences as torch takes them: every row of ``x`` to every row of ``y``."""
    apart = x.unsqueeze(-2) - y.unsqueeze(-3)
    if p == 2.0:
        return apart.square().sum(-1).sqrt()
    apart = apart.abs()
    if p == math.inf:
        return apart.amax(-1)
    if p == 0.0:
        return (apart != 0).to(x.dtype).sum(-1)
    return apart.sum(-1) if p == 1.0 else apart.pow(p).sum(-1).pow(1.0 / p)


def pair_distances(x: Tensor, p: float = 2.0) -> Tensor:
    """``aten::pdist``: of every row to each of those below it."""
    rows = x.shape[0]
    if not isinstance(rows, int) or rows > _MOST_ROWS:
        raise Unsupported(f"distances between all pairs of {rows} rows; expected a fixed number, at most {_MOST_ROWS}")
    below = [x.narrow(0, row + 1, rows - row - 1) for row in range(rows - 1)]
    found = [distances(x.narrow(0, row, 1), rest, p).reshape(-1) for row, rest in enumerate(below)]
    return torch.cat(found) if found else x.reshape(-1).narrow(0, 0, 0)


_DISTANCE_DEFAULTS: tuple[float | None, ...] = (2.0, None)


def by_differences(node: Any) -> bool:
    """Whether torch takes differences here; else it multiplies matrices, which its exporter has.

    The rule is ``cdist_impl``'s in aten/src/ATen/native/Distance.cpp: more than 25 rows on a side are multiplied.
    A dynamic number of rows counts as few: differences are nearer to the truth for any.
    """
    given = [*node.args[2:], *_DISTANCE_DEFAULTS[len(node.args) - 2 :]]
    p, mode = given
    rows = [each.meta["val"].shape[-2] for each in node.args[:2]]
    if p != 2.0 or mode == 2:
        return True
    return mode != 1 and not any(isinstance(size, int) and size > 25 for size in rows)
