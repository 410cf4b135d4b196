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
    """What lies outside of an axis of ``size`` elements: ``zeros``, the ``border``'s or the ``reflection``'s."""

    size: int
    mode: str
    align_corners: bool

    @property
    def low(self) -> float:
        """The mirror before the first element."""
        return 0.0 if self.align_corners else -0.5

    @property
    def high(self) -> float:
        """The mirror behind the last element."""
        return self.size - 1.0 if self.align_corners else self.size - 0.5


def inside(b: Builder, where: Tensor, border: Border) -> Tensor:
    """Coordinates moved into the axis as the border says; unchanged for zeros."""
    if border.mode == "border":
        return clamped(b, where, 0, border.size - 1)
    if border.mode == "reflection":
        return _reflected(b, where, border)
    return where


def clamped(b: Builder, x: Tensor, low: float, high: float) -> Tensor:
    """``x`` limited to ``[low, high]``."""
    return b.minimum(b.maximum(x, like(b, x, low)), like(b, x, high))


def _reflected(b: Builder, where: Tensor, border: Border) -> Tensor:
    span = border.high - border.low
    if span == 0:
        return b.mul(where, like(b, where, 0))
    folded = b.floor_mod(b.sub(where, like(b, where, border.low)), like(b, where, 2 * span))
    distance = b.sub(like(b, where, span), b.abs(b.sub(folded, like(b, where, span))))
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


def cubic_taps(b: Builder, where: Tensor, border: Border) -> list[Tap]:
    """The four neighbours, with Keys' weights for a = -0.75.

    Outside of the border it is the neighbours that are moved into the axis, each by itself, not the place between them:
    so PyTorch and ONNX Runtime have it.  For reflections both are the same, and the place keeps its digits.
    """
    where = inside(b, where, border) if border.mode == "reflection" else where
    first = b.floor(where)
    share = b.sub(where, first)
    a = _CUBIC_A
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
    valid = clamped(b, place if border.mode == "zeros" else inside(b, place, border), 0, border.size - 1)
    if border.mode != "zeros":
        return Tap(b.round(valid), weight)
    present = b.equal(valid, place)
    one, zero = like(b, place, 1), like(b, place, 0)
    return Tap(valid, b.select(present, one if weight is None else weight, zero))


def weighted_pixels(
    b: Builder, rows: Tensor, first_row: Tensor, sizes: Sequence[int], taps: Sequence[Sequence[Tap]]
) -> list[Tensor]:
    """For each combination of taps the pixels times their weight.

    ``rows`` is (images · pixels, C); ``first_row`` says in int32 where each sample's image begins and
    broadcasts against the taps of shape (…); the results are (…, C).
    """
    if max(rows.shape[0], math.prod(sizes)) >= 1 << 24:
        raise Unsupported("more than 2^24 pixels: their numbers are not exact as float32")
    parts = []
    for combination in itertools.product(*taps):
        place = functools.reduce(
            lambda flat, pair: b.add(b.mul(flat, like(b, flat, pair[1])), pair[0].place),
            zip(combination[1:], sizes[1:], strict=True),
            combination[0].place,
        )
        pixels = b.gather(rows, b.add(b.cast(place, "int32"), first_row), 0)
        weights = [tap.weight for tap in combination if tap.weight is not None]
        if weights:
            weight = functools.reduce(b.mul, weights)
            pixels = b.mul(pixels, b.expand_dims(weight, weight.rank))
        parts.append(pixels)
    return parts


def sampled(b: Builder, rows: Tensor, first_row: Tensor, sizes: Sequence[int], taps: Sequence[Sequence[Tap]]) -> Tensor:
    """The interpolated pixels (…, C)."""
    return functools.reduce(b.add, weighted_pixels(b, rows, first_row, sizes, taps))


def image_starts(b: Builder, images: Tensor, pixels: int, rank: int) -> Tensor:
    """The first row of each of the ``images``, to broadcast against samples (images, …) of ``rank`` axes."""
    count = images.shape[0]
    view = (count, *(1,) * (rank - 1))
    if count == DYNAMIC:
        return b.mul(b.reshape(places_along(b, images, 0), view), b.ints([pixels]))
    return b.constant((np.arange(count) * pixels).astype(np.int32).reshape(view))


def flattened(b: Builder, images: Tensor) -> Tensor:
    """Channels-last images, whose number may be dynamic, as rows of pixels."""
    count = DYNAMIC if images.shape[0] == DYNAMIC else math.prod(images.shape[:-1])
    return b.reshape(images, (count, images.shape[-1]))
