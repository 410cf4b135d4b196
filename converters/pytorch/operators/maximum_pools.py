"""Maximum pools to a size (``aten::adaptive_max_pool1d``, ``2d``, ``3d``), which torch's ONNX exporter lacks.

Cell k of n covers floor(k·length/n) to ceil((k+1)·length/n), as in AdaptiveMaxPooling2d.cpp.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from convertkit.converters.pytorch.operators.bags import without_indices
from convertkit.errors import Unsupported

_MOST = 256
"""Cells whose places are told, each a few operators."""


def adaptive_max_pool(x: Tensor, size: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Without places: axis after axis, cell after cell."""
    for axis, cells in zip(range(-len(size), 0), size, strict=True):
        bounds = _bounds(x.shape[axis], cells)
        x = torch.cat([x.narrow(axis, low, high - low).amax(axis, keepdim=True) for low, high in bounds], axis)
    return x, torch.zeros_like(x, dtype=torch.int64)  # which nothing reads


def with_places(x: Tensor, size: Sequence[int]) -> tuple[Tensor, Tensor]:
    """With the place of each maximum, counted through all spatial axes; of equal elements the first."""
    rank = len(size)
    if math.prod(size) > _MOST:
        raise Unsupported(f"an adaptive maximum pool to {math.prod(size)} cells with indices; expected at most {_MOST}")
    lengths = x.shape[-rank:]
    bounds = [_bounds(length, cells) for length, cells in zip(lengths, size, strict=True)]
    steps = [math.prod(lengths[axis + 1 :]) for axis in range(rank)]
    values, places = [], []
    for cell in itertools.product(*bounds):
        window = x
        for axis, (low, high) in enumerate(cell):
            window = window.narrow(axis - rank, low, high - low)
        value, inside = window.flatten(-rank).max(-1)
        place = sum(low * step for (low, _), step in zip(cell, steps, strict=True))
        for axis, step in enumerate(steps):
            width = math.prod(high - low for low, high in cell[axis + 1 :])
            along = torch.div(inside, width, rounding_mode="floor")
            place, inside = place + along * step, inside - along * width
        values.append(value)
        places.append(place)
    shape = [*x.shape[:-rank], *size]
    return torch.stack(values, -1).reshape(shape), torch.stack(places, -1).reshape(shape)


def reads_places(node: Any) -> bool:
    """Whether a node's second result is read."""
    return not without_indices(node)


def _bounds(length: Any, cells: int) -> list[tuple[int, int]]:
    if not isinstance(length, int):
        raise Unsupported("an adaptive maximum pool over a dynamic size; expected a fixed one")
    return [(k * length // cells, -(-(k + 1) * length // cells)) for k in range(cells)]


POOLS: Mapping[Any, tuple[Callable[..., Any], Callable[[Any], bool]]] = MappingProxyType(
    dict.fromkeys(
        (getattr(torch.ops.aten, f"adaptive_max_pool{rank}d").default for rank in (1, 2, 3)),
        (adaptive_max_pool, without_indices),
    )
)
"""By overload: the function, and whether a node needs it."""
