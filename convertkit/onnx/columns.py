"""Where the columns of ONNX ``Col2Im`` belong in an image."""

from __future__ import annotations

import math

import numpy as np

from convertkit.artifact import Array


def block_places(
    image: tuple[int, ...],
    block: tuple[int, ...],
    dilations: tuple[int, ...] | None,
    pads: tuple[int, ...] | None,
    strides: tuple[int, ...] | None,
) -> Array:
    """For each element of each block the pixel it adds to, the pixel behind the last where it is padding."""
    rank = len(image)
    holes, sides, steps = dilations or (1,) * rank, pads or (0,) * (2 * rank), strides or (1,) * rank
    axes = []
    for axis, size in enumerate(image):
        reach = (block[axis] - 1) * holes[axis] + 1
        count = (size + sides[axis] + sides[axis + rank] - reach) // steps[axis] + 1
        inside = np.arange(block[axis])[:, None] * holes[axis]
        axes.append(inside + np.arange(count)[None] * steps[axis] - sides[axis])
    flat = np.zeros((1,) * (2 * rank), np.int64)
    valid = np.ones((1,) * (2 * rank), bool)
    for axis, (size, places) in enumerate(zip(image, axes, strict=True)):
        view = [1] * (2 * rank)
        view[axis], view[axis + rank] = places.shape
        grid = places.reshape(view)
        flat = flat * size + grid
        valid = valid & (grid >= 0) & (grid < size)
    return np.where(valid, flat, math.prod(image)).astype(np.int32).reshape(-1)
