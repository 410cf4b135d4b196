"""Maximum pools to a size (``aten::adaptive_max_pool1d``, ``2d``, ``3d``), which torch's ONNX exporter lacks.

Cell k of n covers floor(k·length/n) to ceil((k+1)·length/n), as in AdaptiveMaxPooling2d.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from convertkit.converters.pytorch.operators.bags import without_indices
from convertkit.errors import Unsupported

_MOST = 256
"""Cells of all axes whose places are told, each a few operators."""


def adaptive_max_pool(x: Tensor, size: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Without places: axis after axis, cell after cell."""
    for axis, cells in zip(range(-len(size), 0), size, strict=True):
        bounds = _bounds(x.shape[axis], cells)
        x = torch.cat([x.narrow(axis, low, high - low).amax(axis, keepdim=True) for low, high in bounds], axis)
    return x, torch.zeros_like(x, dtype=torch.int64)  # which nothing reads


def with_places(x: Tensor, size: Sequence[int]) -> tuple[Tensor, Tensor]:
    """With the place of each maximum, counted through all spatial axes; of equal elements the first.

    Axis after axis from the last on: of equal rows the first, and in it the first of its elements.
    """
    if sum(size) > _MOST:
        raise Unsupported(
            f"an adaptive maximum pool with indices of sizes {list(size)}; expected a sum of {_MOST} at most"
        )
    places, step = None, 1
    for axis, cells in reversed(list(zip(range(-len(size), 0), size, strict=True))):
        length = x.shape[axis]
        told = [_told(x, places, axis, low, high, step) for low, high in _bounds(length, cells)]
        x, places = (torch.cat(each, axis) for each in zip(*told, strict=True))
        step *= length
    assert places is not None
    return x, places


def _told(x: Tensor, places: Tensor | None, axis: int, low: int, high: int, step: int) -> tuple[Tensor, Tensor]:
    """The maximum of a cell along one axis, and its place through this axis and those behind it."""
    value, inside = x.narrow(axis, low, high - low).max(axis, keepdim=True)
    along = (inside + low) * step
    return value, along if places is None else along + places.narrow(axis, low, high - low).gather(axis, inside)


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
