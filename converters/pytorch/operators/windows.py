"""Windows of an image side by side, by slices: torch gathers them with six dimensions."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

_MOST = 64
"""Elements of a window, each a slice."""


def unfolded(
    x: Tensor, kernel: Sequence[int], dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int]
) -> Tensor:
    """``aten::im2col``: [C, H, W], with a batch or without, as [C·kernel, windows]; rules as in im2col.h."""
    x = torch.nn.functional.pad(x, [padding[1], padding[1], padding[0], padding[0]])
    counts = [
        (x.shape[axis] - dilation[axis] * (kernel[axis] - 1) - 1) // stride[axis] + 1 for axis in (-2, -1)
    ]  # fmt: skip
    parts = []
    for place in itertools.product(*map(range, kernel)):
        part = x
        for axis in (-2, -1):
            first = place[axis] * dilation[axis]
            part = _every(part, axis, first, counts[axis], stride[axis])
        parts.append(part)
    together = torch.stack(parts, -3)
    return together.reshape([*x.shape[:-3], x.shape[-3] * len(parts), counts[0] * counts[1]])


def _every(x: Tensor, axis: int, first: int, count: int, step: int) -> Tensor:
    end = first + (count - 1) * step + 1
    return torch.ops.aten.slice.Tensor(x, axis, first, end, step)


def is_small(node: Any) -> bool:
    """Whether a node has windows of few elements, one at each place of an image of known size.

    Slices that leave out places are slower than to gather, in TFLite up to three times.
    """
    kernel, shape = node.args[1], node.args[0].meta["val"].shape
    known = all(isinstance(size, int) for size in shape[-2:])
    return bool(known and kernel[0] * kernel[1] <= _MOST and set(node.args[4]) == {1})
