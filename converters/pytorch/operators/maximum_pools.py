"""Maximum pools to a size (``aten::adaptive_max_pool1d``, ``2d``, ``3d``), which torch's ONNX exporter lacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from convertkit.converters.pytorch.operators.bags import without_indices
from convertkit.converters.pytorch.operators.cells import are_all, bounds, gathered, places, pooled
from convertkit.errors import Unsupported

_MOST = 256
"""Cells of all axes whose places are told, each a few operators."""


def adaptive_max_pool(x: Tensor, size: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Without places: axis after axis, cell after cell."""
    for axis, cells in zip(range(-len(size), 0), size, strict=True):
        if not are_all(x.shape[axis], cells):
            x = _greatest(x, axis, cells)
    return x, torch.zeros_like(x, dtype=torch.int64)  # which nothing reads


def _greatest(x: Tensor, axis: int, cells: Any) -> Tensor:
    """The maximum of each cell along one axis; an element that is repeated changes none."""
    return pooled(x, axis, cells, lambda cell: cell.amax(axis, keepdim=True), lambda elements, _: elements.amax(axis))


def with_places(x: Tensor, size: Sequence[int]) -> tuple[Tensor, Tensor]:
    """With the place of each maximum, counted through all spatial axes; of equal elements the first.

    Axis after axis from the last on: of equal rows the first, and in it the first of its elements.
    """
    if all(isinstance(each, int) for each in size) and sum(size) > _MOST:
        raise Unsupported(
            f"an adaptive maximum pool with indices of sizes {list(size)}; expected a sum of {_MOST} at most"
        )
    found, step = None, 1
    for axis, cells in reversed(list(zip(range(-len(size), 0), size, strict=True))):
        length = x.shape[axis]
        if isinstance(length, int):
            told = [_told(x, found, axis, low, high, step) for low, high in bounds(length, cells)]
            x, found = (torch.cat(each, axis) for each in zip(*told, strict=True))
        else:
            x, found = _told_of_any(x, found, axis, cells, step)
        step *= length
    assert found is not None
    return x, found


def _told(x: Tensor, places: Tensor | None, axis: int, low: int, high: int, step: int) -> tuple[Tensor, Tensor]:
    """The maximum of a cell along one axis, and its place through this axis and those behind it."""
    value, inside = x.narrow(axis, low, high - low).max(axis, keepdim=True)
    along = (inside + low) * step
    return value, along if places is None else along + places.narrow(axis, low, high - low).gather(axis, inside)


def _told_of_any(x: Tensor, found: Tensor | None, axis: int, cells: Any, step: Any) -> tuple[Tensor, Tensor]:
    """The same for all cells along an axis of a dynamic length; a repeated element is never the first."""
    where, _ = places(x.shape[axis], cells)
    value, inside = gathered(x, axis, where).max(axis, keepdim=True)
    along = where.reshape([*where.shape, *[1] * (-axis - 1)]) * step
    if found is not None:
        along = along + gathered(found, axis, where)
    shape = [*inside.shape[:axis], where.shape[1], *(inside.shape[axis + 1 :] if axis != -1 else ())]
    return value.squeeze(axis), along.expand(shape).gather(axis, inside).squeeze(axis)


def reads_places(node: Any) -> bool:
    """Whether a node's second result is read."""
    return not without_indices(node)


POOLS: Mapping[Any, tuple[Callable[..., Any], Callable[[Any], bool]]] = MappingProxyType(
    dict.fromkeys(
        (getattr(torch.ops.aten, f"adaptive_max_pool{rank}d").default for rank in (1, 2, 3)),
        (adaptive_max_pool, without_indices),
    )
)
"""By overload: the function, and whether a node needs it."""
