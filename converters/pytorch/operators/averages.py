"""Average pooling with a divisor of its own, which torch's ONNX exporter leaves out without a word."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

_DIVISOR = 6
"""Which operand of ``aten::avg_pool2d`` and ``avg_pool3d`` is the divisor."""


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
