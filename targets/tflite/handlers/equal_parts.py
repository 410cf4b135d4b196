"""Equal parts of an axis whose size is only known at run time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.tensor import DYNAMIC, Tensor


def equal_parts(b: Builder, x: Tensor, axis: int, count: int) -> Iterator[Tensor]:
    """``count`` parts of ``x`` along ``axis``, of which the last may be smaller or empty (ONNX operators, Split-18)."""
    total = b.size_of(x, axis)
    part = b.floor_div(b.add(total, _number(b, count - 1)), _number(b, count))
    shape = tuple(DYNAMIC if place == axis else size for place, size in enumerate(x.shape))
    for place in range(count):
        first = b.minimum(b.mul(part, _number(b, place)), total)
        size = b.minimum(part, b.sub(total, first))
        begins = b.sizes([first if each == axis else 0 for each in range(x.rank)])
        sizes = b.sizes([size if each == axis else -1 for each in range(x.rank)])
        yield b.slice_at(x, begins, sizes, shape)


def _number(b: Builder, number: int) -> Tensor:
    return b.constant(np.array([number], np.int32))
