"""Volumes that are read at the points of a grid, which torch's ONNX exporter lacks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

_NEAREST = 1
"""Of ``aten::grid_sampler_3d``'s modes; the other is linear."""
_ZEROS, _BORDER = 0, 1
"""Of its paddings; the other reflects."""


def sampled(x: Tensor, grid: Tensor, mode: int, padding: int, align_corners: bool) -> Tensor:
    """``aten::grid_sampler_3d``: ``x`` [N, C, D, H, W] at the points of ``grid`` [N, d, h, w, 3], which are (x, y, z).

    The rules are those of GridSampler.h: how points become places, how these are reflected, and that a corner outside
    of the volume counts as 0.
    """
    count, channels, *sizes = x.shape
    places = [_padded(_place(grid[..., 2 - axis], size, align_corners), size, padding, align_corners)
              for axis, size in enumerate(sizes)]  # fmt: skip
    flat = x.reshape(count, channels, -1)
    if mode == _NEAREST:
        return _read(flat, [place.round() for place in places], sizes, padding, grid)
    total: Tensor | None = None
    lows = [place.floor() for place in places]
    for corner in itertools.product((0, 1), repeat=3):
        ends = [low + step for low, step in zip(lows, corner, strict=True)]
        weights = [place - low if step else low + 1 - place
                   for place, low, step in zip(places, lows, corner, strict=True)]  # fmt: skip
        weight = (weights[0] * weights[1] * weights[2]).unsqueeze(1)
        part = _read(flat, ends, sizes, padding, grid) * weight
        total = part if total is None else total + part
    assert total is not None
    return total


def _place(coordinate: Tensor, size: Any, align_corners: bool) -> Tensor:
    """From -1 … 1 to 0 … size - 1, or half an element further out."""
    return (coordinate + 1) / 2 * (size - 1) if align_corners else ((coordinate + 1) * size - 1) / 2


def _padded(place: Tensor, size: Any, padding: int, align_corners: bool) -> Tensor:
    if padding == _ZEROS:
        return place
    if padding != _BORDER:
        low, span = (0.0, size - 1) if align_corners else (-0.5, size)
        if span == 0:
            return torch.zeros_like(place)
        beyond = (place - low).abs()
        rest, turns = torch.fmod(beyond, span), torch.floor(beyond / span)
        place = torch.where(torch.fmod(turns, 2) == 0, rest + low, span - rest + low)
    return place.clamp(0, size - 1)


def _read(flat: Tensor, ends: Sequence[Tensor], sizes: Sequence[Any], padding: int, grid: Tensor) -> Tensor:
    """Elements of ``flat`` [N, C, D·H·W] at whole places; 0 where these lie outside and the padding is of zeros."""
    index, inside = torch.zeros_like(ends[0], dtype=torch.int64), torch.ones_like(ends[0])
    for end, size in zip(ends, sizes, strict=True):
        index = index * size + end.clamp(0, size - 1).to(torch.int64)
        inside = inside * ((end >= 0) & (end <= size - 1)).to(inside.dtype)
    shape = [flat.shape[0], flat.shape[1], *grid.shape[1:4]]
    wide = index.reshape(shape[0], 1, -1).expand(shape[0], shape[1], math.prod(shape[2:]))
    found = flat.gather(2, wide).reshape(shape)
    return found * inside.unsqueeze(1) if padding == _ZEROS else found
