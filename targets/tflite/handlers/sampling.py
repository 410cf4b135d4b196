"""Reading images at computed places: a few neighbours along each axis, weighted and summed.

An axis gives taps: integer coordinates with weights; the taps of all axes are combined, each combination
is one GATHER of pixels from the flattened channels-last images.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from convertkit.errors import Unsupported
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.handlers.elementary import like, polynomial
from convertkit.targets.tflite.handlers.indexing import places_along
from convertkit.targets.tflite.tensor import DYNAMIC, Tensor

_CUBIC_A = -0.75


@dataclass(frozen=True, slots=True)
class Tap:
    """One neighbour: its coordinate, a valid index as float32, and its weight (None for 1)."""

    place: Tensor
    weight: Tensor | None


@dataclass(frozen=True, slots=True)
class Border:
    """What lies outside of an axis of ``size`` elements: ``zeros``, the ``border``'s or the ``reflection``'s.

    A size that is only known at run time is a float32 scalar.
    """

    size: int | Tensor
    mode: str
    align_corners: bool

    @property
    def low(self) -> float:
        """The mirror before the first element; the one behind the last lies as far behind it."""
        return 0.0 if self.align_corners else -0.5

    def last(self, b: Builder) -> float | Tensor:
        """The coordinate of the last element."""
        return b.sub(self.size, like(b, self.size, 1)) if isinstance(self.size, Tensor) else self.size - 1

    def span(self, b: Builder) -> float | Tensor:
        """From one mirror to the other."""
        return self.last(b) if self.align_corners else self.size


def inside(b: Builder, where: Tensor, border: Border) -> Tensor:
    """Coordinates moved into the axis as the border says; unchanged for zeros."""
    if border.mode == "border":
        return clamped(b, where, 0, border.last(b))
    if border.mode == "reflection":
        return _reflected(b, where, border)
    return where


def clamped(b: Builder, x: Tensor, low: float, high: float | Tensor) -> Tensor:
    """``x`` limited to ``[low, high]``."""
    return b.minimum(b.maximum(x, like(b, x, low)), high if isinstance(high, Tensor) else like(b, x, high))


def _reflected(b: Builder, where: Tensor, border: Border) -> Tensor:
    """Folded at both mirrors; with one element between them, whatever is near: all neighbours are that element."""
    span = border.span(b)
    if span == 0:
        return b.mul(where, like(b, where, 0))
    if isinstance(span, Tensor):
        far, period = span, b.maximum(b.add(span, span), like(b, span, 1))
    else:
        far, period = like(b, where, span), like(b, where, 2 * span)
    folded = b.floor_mod(b.sub(where, like(b, where, border.low)), period)
    distance = b.sub(far, b.abs(b.sub(folded, far)))
    return b.add(distance, like(b, where, border.low))


def nearest_taps(b: Builder, where: Tensor, border: Border) -> list[Tap]:
    """The nearest element, halves to even."""
    return [_tap(b, inside(b, b.round(where), border), None, border)]


def linear_taps(b: Builder, where: Tensor, border: Border) -> list[Tap]:
    """The two neighbours."""
    where = inside(b, where, border)
    first = b.floor(where)
    share = b.sub(where, first)
    one = like(b, where, 1)
    return [
        _tap(b, first, b.sub(one, share), border),
        _tap(b, b.add(first, one), share, border),
    ]


def cubic_taps(b: Builder, where: Tensor, border: Border, a: float = _CUBIC_A) -> list[Tap]:
    """The four neighbours, with Keys' weights.

    Outside of the border it is the neighbours that are moved into the axis, each by itself, not the place between them:
    so PyTorch and ONNX Runtime have it.  For reflections both are the same, and the place keeps its digits.
    """
    where = inside(b, where, border) if border.mode == "reflection" else where
    first = b.floor(where)
    share = b.sub(where, first)
    near = (1.0, 0.0, -(a + 3), a + 2)
    far = (-4 * a, 8 * a, -5 * a, a)
    taps = []
    for step, weights in ((-1, far), (0, near), (1, near), (2, far)):
        distance = b.add(share, like(b, where, 1)) if step == -1 else b.abs(b.sub(share, like(b, where, step)))
        taps.append(_tap(b, b.add(first, like(b, where, step)), polynomial(b, distance, weights), border))
    return taps


TAPS = {
    "nearest": nearest_taps,
    "linear": linear_taps,
    "bilinear": linear_taps,
    "cubic": cubic_taps,
    "bicubic": cubic_taps,
}
"""By GridSample's ``mode``, under its old and new names."""


def _tap(b: Builder, place: Tensor, weight: Tensor | None, border: Border) -> Tap:
    """A tap with a valid index: outside of the axis its weight is zero, or the border gives it another one."""
    valid = clamped(b, place if border.mode == "zeros" else inside(b, place, border), 0, border.last(b))
    if border.mode != "zeros":
        return Tap(b.round(valid), weight)
    present = b.equal(valid, place)
    one, zero = like(b, place, 1), like(b, place, 0)
    return Tap(valid, b.select(present, one if weight is None else weight, zero))


def weighted_pixels(
    b: Builder, rows: Tensor, first_row: Tensor, sizes: Sequence[int | Tensor], taps: Sequence[Sequence[Tap]]
) -> list[Tensor]:
    """For each combination of taps the pixels times their weight.

    ``rows`` is (images · pixels, C); ``first_row`` says in int32 where each sample's image begins and
    broadcasts against the taps of shape (…); the results are (…, C).  A size that is only known at run time is an
    int32 tensor of one element.
    """
    known = [size for size in sizes if isinstance(size, int)]
    if max(rows.shape[0], math.prod(known)) >= 1 << 24:
        raise Unsupported("more than 2^24 pixels: their numbers are not exact as float32")
    parts = []
    for combination in itertools.product(*taps):
        counted = _counted if len(known) == len(sizes) else _counted_at_run_time
        pixels = b.gather(rows, b.add(counted(b, [tap.place for tap in combination], sizes), first_row), 0)
        weights = [tap.weight for tap in combination if tap.weight is not None]
        if weights:
            weight = functools.reduce(b.mul, weights)
            pixels = b.mul(pixels, b.expand_dims(weight, weight.rank))
        parts.append(pixels)
    return parts


def _counted(b: Builder, places: Sequence[Tensor], sizes: Sequence[int | Tensor]) -> Tensor:
    """The number of a pixel in its image, int32: computed as float32, for which there are faster kernels."""
    flat = places[0]
    for place, size in zip(places[1:], sizes[1:], strict=True):
        assert isinstance(size, int)
        flat = b.add(b.mul(flat, like(b, flat, size)), place)
    return b.cast(flat, "int32")


def _counted_at_run_time(b: Builder, places: Sequence[Tensor], sizes: Sequence[int | Tensor]) -> Tensor:
    """The same of an image that may have any number of pixels."""
    flat = b.cast(places[0], "int32")
    for place, size in zip(places[1:], sizes[1:], strict=True):
        width = b.ints([size]) if isinstance(size, int) else size
        flat = b.add(b.mul(flat, width), b.cast(place, "int32"))
    return flat


def sampled(
    b: Builder, rows: Tensor, first_row: Tensor, sizes: Sequence[int | Tensor], taps: Sequence[Sequence[Tap]]
) -> Tensor:
    """The interpolated pixels (…, C)."""
    return functools.reduce(b.add, weighted_pixels(b, rows, first_row, sizes, taps))


def image_starts(b: Builder, images: Tensor, sizes: Sequence[int | Tensor], rank: int) -> Tensor:
    """The first row of each of the ``images``, to broadcast against samples (images, …) of ``rank`` axes."""
    count = images.shape[0]
    view = (count, *(1,) * (rank - 1))
    pixels = pixel_count(b, sizes)
    if count == DYNAMIC or pixels.constant is None:
        return b.mul(b.reshape(places_along(b, images, 0), view), pixels)
    return b.constant((np.arange(count) * pixels.constant).astype(np.int32).reshape(view))


def pixel_count(b: Builder, sizes: Sequence[int | Tensor]) -> Tensor:
    """How many pixels an image has, an int32 tensor of one element."""
    known = b.ints([math.prod(size for size in sizes if isinstance(size, int))])
    unknown = [size for size in sizes if isinstance(size, Tensor)]
    return functools.reduce(b.mul, unknown, known)


def flattened(b: Builder, images: Tensor) -> Tensor:
    """Channels-last images, whose number and sizes may be dynamic, as rows of pixels."""
    count = DYNAMIC if DYNAMIC in images.shape[:-1] else math.prod(images.shape[:-1])
    return b.reshape(images, (count, images.shape[-1]))


def sizes_of(b: Builder, images: Tensor) -> list[int | Tensor]:
    """The sizes of channels-last images, those that are only known at run time as int32 tensors of one element."""
    axes = range(1, images.rank - 1)
    return [b.size_of(images, axis) if images.shape[axis] == DYNAMIC else images.shape[axis] for axis in axes]


def as_real(b: Builder, size: int | Tensor) -> int | Tensor:
    """A size for :class:`Border`."""
    return b.reshape(b.cast(size, "float32"), ()) if isinstance(size, Tensor) else size
