"""Cells of adaptive pools: cell k of n covers floor(k·length/n) to ceil((k+1)·length/n).

Source: aten/src/ATen/native/AdaptiveAveragePooling.cpp and AdaptiveMaxPooling2d.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from convertkit.errors import Unsupported


def bounds(length: int, cells: int) -> list[tuple[int, int]]:
    """Where each cell begins and ends."""
    return [(k * length // cells, -(-(k + 1) * length // cells)) for k in range(cells)]


def are_all(length: Any, cells: Any) -> bool:
    """Whether each cell is one element, for any length."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true  # brings sympy, which archives do not need

    return bool(statically_known_true(cells == length))


def has_dynamic_length(node: Any) -> bool:
    """Whether a pool's length along an axis is known at run time alone."""
    size = node.args[1]
    return not all(isinstance(length, int) for length in node.args[0].meta["val"].shape[-len(size) :])


def pooled(
    x: Tensor, axis: int, cells: Any, of_one: Callable[[Tensor], Tensor], of_any: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """One axis pooled: ``of_one`` makes one element of a cell and keeps the axis.

    Of a dynamic length ``of_any`` gets :func:`gathered` elements, and which of them count, in the same two axes; it
    leaves the first of the two.
    """
    length = x.shape[axis]
    if isinstance(cells, int) and cells == 1:
        return of_one(x)
    if isinstance(length, int):
        return torch.cat([of_one(x.narrow(axis, low, high - low)) for low, high in bounds(length, cells)], axis)
    where, counts = places(length, cells)
    return of_any(gathered(x, axis, where), counts.reshape([*counts.shape, *[1] * (-axis - 1)]))


def places(length: Any, cells: Any) -> tuple[Tensor, Tensor]:
    """Cells × elements of a dynamic length: each cell's elements, and whether they count.

    All have as many as the widest can have; behind its last element a narrower one repeats that.
    """
    if not isinstance(cells, int):
        raise Unsupported("an adaptive pool to a dynamic size; expected a fixed one")
    cell, along = torch.arange(cells).unsqueeze(1), torch.arange((length + cells - 1) // cells + 1)
    first = torch.div(cell * length, cells, rounding_mode="floor")
    last = torch.div((cell + 1) * length + (cells - 1), cells, rounding_mode="floor") - 1
    return torch.minimum(first + along, last), first + along <= last


def gathered(x: Tensor, axis: int, where: Tensor) -> Tensor:
    """The elements at ``where``, cells × elements, in two axes for the one, which is counted from the end."""
    shape: Sequence[Any] = x.shape
    behind = shape[axis + 1 :] if axis != -1 else ()
    return x.index_select(axis, where.reshape(-1)).reshape([*shape[:axis], *where.shape, *behind])
