"""Average pooling with a divisor of its own, which torch's ONNX exporter leaves out without a word, and to a size."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from convertkit.converters.pytorch.operators.cells import are_all, has_dynamic_length, pooled

_DIVISOR = 6
"""Which operand of ``aten::avg_pool2d`` and ``avg_pool3d`` is the divisor."""

_MOST_CELLS = 64


def has_divisor(node: Any) -> bool:
    """Whether a node says what its sums are divided by."""
    return (len(node.args) > _DIVISOR and node.args[_DIVISOR] is not None) or bool(node.kwargs.get("divisor_override"))


def _over(rank: int) -> Callable[..., Any]:
    """The operator of ``rank`` spatial axes, which are the last of ``x``."""

    def average_pool(
        x: Tensor,
        kernel: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        return _average_pool(rank, x, kernel, stride, padding, divisor_override, ceil_mode=ceil_mode)

    return average_pool


average_pool_2d = _over(2)
"""``aten::avg_pool2d`` with a divisor."""
average_pool_3d = _over(3)
"""``aten::avg_pool3d`` with a divisor."""


def _average_pool(
    rank: int,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    divisor: int | None,
    *,
    ceil_mode: bool,
) -> Any:
    """The mean of a padded window, times its elements over the divisor.

    One number for all axes may stand alone.  With ``ceil_mode`` a last window may reach beyond the padding, but begins
    in front of its end.
    """
    if divisor is None:
        return NotImplemented
    kernel, padding = _each(kernel, rank), _each(padding, rank)
    steps = _each(stride or kernel, rank)
    around: list[int] = []
    for axis, (window, step, pad) in enumerate(zip(kernel, steps, padding, strict=True)):
        around = [pad, pad + _missing(x.shape[axis - rank], window, step, pad, ceil_mode=ceil_mode), *around]
    pool = torch.nn.functional.avg_pool2d if rank == 2 else torch.nn.functional.avg_pool3d
    padded = torch.nn.functional.pad(x, around)
    return pool(padded, kernel, steps) * (math.prod(kernel) / divisor)


def _missing(size: int, window: int, step: int, pad: int, *, ceil_mode: bool) -> int:
    """How far the last window reaches beyond the padding."""
    room = size + 2 * pad - window
    if not ceil_mode or room % step == 0:
        return 0
    last = (room // step + 1) * step
    return last + window - size - 2 * pad if last < size + pad else 0


def _each(given: Sequence[int], rank: int) -> list[int]:
    return list(given) * rank if len(given) == 1 else list(given)


def adaptive_average_pool(x: Tensor, size: Sequence[int]) -> Tensor:
    """``aten::adaptive_avg_pool1d``, ``2d`` and ``3d``, with a batch or without: axis after axis, cell after cell.

    All cells along an axis are means of as many elements for every other axis, so that means of means are means.
    """
    axes = range(-len(size), 0)
    if all(isinstance(cells, int) and cells == 1 for cells in size):
        return x.mean(list(axes), keepdim=True)
    lengths = [x.shape[axis] for axis in axes]
    if len(size) == 3 and _are_known(lengths) and _divide(lengths, size):
        return torch.nn.functional.avg_pool3d(x, [length // cells for length, cells in zip(lengths, size, strict=True)])
    for axis, length, cells in zip(axes, lengths, size, strict=True):
        if not are_all(length, cells):
            x = _means(x, axis, cells)
    return x


def _means(x: Tensor, axis: int, cells: Any) -> Tensor:
    """The mean of each cell along one axis."""

    def of_any(elements: Tensor, counts: Tensor) -> Tensor:
        sums = torch.where(counts, elements, torch.zeros((), dtype=x.dtype)).sum(axis)
        return sums / counts.to(x.dtype).sum(1)

    return pooled(x, axis, cells, lambda cell: cell.mean(axis, keepdim=True), of_any)


def has_cells_of_its_own(node: Any) -> bool:
    """Whether a node pools to few cells that are not alike, or of bounds that are known at run time alone.

    Cells that are alike are windows of a plain pool.
    """
    if has_dynamic_length(node):
        return True
    size = node.args[1]
    lengths = node.args[0].meta["val"].shape[-len(size) :]
    return _are_known((*lengths, *size)) and not _divide(lengths, size) and sum(size) <= _MOST_CELLS


def _are_known(sizes: Sequence[Any]) -> bool:
    return all(isinstance(each, int) for each in sizes)


def _divide(lengths: Sequence[int], size: Sequence[int]) -> bool:
    return all(length % cells == 0 for length, cells in zip(lengths, size, strict=True))
