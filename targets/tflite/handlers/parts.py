"""Parts of an axis whose sizes are only known at run time: equal ones, and those of computed sizes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.tensor import DYNAMIC, Tensor


def equal_parts(b: Builder, x: Tensor, axis: int, count: int) -> Iterator[Tensor]:
    """``count`` parts of ``x`` along ``axis``, of which the last may be smaller or empty (ONNX operators, Split-18)."""
    total = b.size_of(x, axis)
    part = b.floor_div(b.add(total, _number(b, count - 1)), _number(b, count))
    for place in range(count):
        first = b.minimum(b.mul(part, _number(b, place)), total)
        yield _part(b, x, axis, first, b.minimum(part, b.sub(total, first)))


def computed_parts(b: Builder, x: Tensor, axis: int, sizes: Tensor, count: int) -> Iterator[Tensor]:
    """``count`` parts of ``x`` along ``axis``, each as long as its element of ``sizes``; a part may be empty."""
    wanted, first = b.cast(sizes, "int32"), _number(b, 0)
    for place in range(count):
        size = b.slice(wanted, (place,), (1,))
        yield _part(b, x, axis, first, size)
        first = b.add(first, size) if place + 1 < count else first


def _part(b: Builder, x: Tensor, axis: int, first: Tensor, size: Tensor) -> Tensor:
    """``size`` elements of ``axis`` from ``first``, both int32 vectors of one element."""
    shape = tuple(DYNAMIC if place == axis else known for place, known in enumerate(x.shape))
    begins = b.sizes([first if each == axis else 0 for each in range(x.rank)])
    sizes = b.sizes([size if each == axis else -1 for each in range(x.rank)])
    return b.slice_at(x, begins, sizes, shape)


def _number(b: Builder, number: int) -> Tensor:
    return b.constant(np.array([number], np.int32))
