"""MaxRoiPool: maxima of the bins of boxes that the model computes."""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass

import numpy as np

from convertkit.errors import Unsupported
from convertkit.onnx.registry import Registry
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.handlers.elementary import float_only, like
from convertkit.targets.tflite.handlers.indexing import static_shape
from convertkit.targets.tflite.handlers.sampling import clamped, flattened
from convertkit.targets.tflite.handlers.shapes import cut
from convertkit.targets.tflite.tensor import Tensor

regions = Registry()


@regions.lowers("MaxRoiPool", since=(1, 22))
def max_roi_pool(
    b: Builder, x: Tensor, rois: Tensor, *, pooled_shape: tuple[int, ...], spatial_scale: float = 1.0
) -> Tensor:
    """Each bin is the maximum of four windows that cover it; their sides are powers of two, so there are few kinds.

    ``rois`` (boxes, 5) has the number of an image, then the corners x, y, x, y, which are inside of the box.
    """
    float_only(x, "MaxRoiPool")
    images, _, height, width = static_shape(x, "MaxRoiPool")
    count = static_shape(rois, "MaxRoiPool")[0]
    pixels = b.transpose(x, (0, 2, 3, 1))
    kinds = [kind for tall in _window_maxima(b, pixels, 1) for kind in _window_maxima(b, tall, 2)]
    rows = flattened(b, b.concatenation(kinds, 0))
    if rows.shape[0] >= 1 << 24:
        raise Unsupported("more than 2^24 windows: their numbers are not exact as float32")
    down = _cover(b, rois, 0, height, (count, pooled_shape[0], 1), spatial_scale)
    across = _cover(b, rois, 1, width, (count, 1, pooled_shape[1]), spatial_scale)
    image = b.reshape(_column(b, rois, 0), (count, 1, 1))
    first = _joined(b, [(down.kind, width.bit_length()), (across.kind, images), (image, height)])
    corners = []
    for top, left in itertools.product(down.places, across.places):
        place = b.add(b.mul(b.add(first, top), like(b, top, width)), left)
        corners.append(b.gather(rows, b.cast(place, "int32"), 0))
    found = functools.reduce(b.maximum, corners)
    inside = b.expand_dims(b.logical_and(down.present, across.present), 3)
    return b.transpose(b.select(inside, found, like(b, found, 0)), (0, 3, 1, 2))


@dataclass(frozen=True, slots=True)
class Cover:
    """Two windows along an axis that together are a bin.

    ``kind`` is the exponent of their size, ``places`` are their first elements, ``present`` says where the bin has any.
    """

    kind: Tensor
    places: tuple[Tensor, Tensor]
    present: Tensor


def _cover(b: Builder, rois: Tensor, axis: int, size: int, view: tuple[int, ...], scale: float) -> Cover:
    """The windows of all bins along ``axis``; ``view`` is (boxes, bins) with a 1 for the other axis."""
    edges = _bin_edges(b, rois, axis, math.prod(view[1:]), scale)
    begin, end = (b.reshape(clamped(b, edge, 0, size), view) for edge in edges)
    length = b.sub(end, begin)
    kind, side = _largest_power(b, length, size)
    first, last = (clamped(b, place, 0, size - 1) for place in (begin, b.sub(end, side)))
    return Cover(kind, (first, last), b.greater(length, like(b, length, 0)))


def _joined(b: Builder, digits: list[tuple[Tensor, int]]) -> Tensor:
    """A number of mixed radix: each digit is added, and the sum multiplied by the size that follows it."""
    (total, size), *rest = digits
    total = b.mul(total, like(b, total, size))
    for digit, size in rest:
        total = b.mul(b.add(total, digit), like(b, total, size))
    return total


def _window_maxima(b: Builder, images: Tensor, axis: int) -> list[Tensor]:
    """For 1, 2, 4, … up to the size of ``axis``: the maxima of so many elements from each one on."""
    size = images.shape[axis]
    found = [images]
    for level in range(size.bit_length() - 1):
        behind = np.minimum(np.arange(size) + (1 << level), size - 1)
        found.append(b.maximum(found[-1], b.gather(found[-1], b.ints(behind.tolist()), axis)))
    return found


def _bin_edges(b: Builder, rois: Tensor, axis: int, bins: int, scale: float) -> tuple[Tensor, Tensor]:
    """First elements (boxes, bins) of the bins along ``axis``, and those behind their last ones."""
    begin, end = (_half_away(b, b.mul(_column(b, rois, at - axis), like(b, rois, scale))) for at in (2, 4))
    length = b.maximum(b.add(b.sub(end, begin), like(b, end, 1)), like(b, end, 1))
    step = b.expand_dims(b.div(length, like(b, length, bins)), 1)
    count = np.arange(bins + 1, dtype=np.float32)[None]
    begin = b.expand_dims(begin, 1)
    return (
        b.add(b.floor(b.mul(step, b.constant(count[:, :-1]))), begin),
        b.add(b.ceil(b.mul(step, b.constant(count[:, 1:]))), begin),
    )


def _half_away(b: Builder, x: Tensor) -> Tensor:
    """The nearest whole number, halves away from zero."""
    size = b.abs(x)
    whole = b.floor(size)
    up = b.cast(b.greater_equal(b.sub(size, whole), like(b, x, 0.5)), "float32")
    return b.mul(b.sign(x), b.add(whole, up))


def _largest_power(b: Builder, length: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The exponent of the largest power of two up to ``length``, and that power; of 1 where it is smaller."""
    exponent, power = like(b, length, 0), like(b, length, 1)
    for level in range(1, size.bit_length()):
        reached = b.cast(b.greater_equal(length, like(b, length, 1 << level)), "float32")
        exponent = b.add(exponent, reached)
        power = b.add(power, b.mul(reached, like(b, power, 1 << (level - 1))))
    return exponent, power


def _column(b: Builder, rois: Tensor, column: int) -> Tensor:
    """One number of each box."""
    part = cut(b, rois, [slice(None), slice(column, column + 1)])
    return b.reshape(part, rois.shape[:1])
