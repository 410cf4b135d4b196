"""Pools that no kernel computes: over other than two axes, with holes, with indices, or of other norms.

Windows are separable: a maximum over a box is a maximum along each axis, a sum is a product with a
constant matrix along each axis.
"""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np

from convertkit.artifact import Array
from convertkit.errors import UnknownSize, Unsupported
from convertkit.onnx.registry import Registry
from convertkit.targets.forms.windows import Window
from convertkit.targets.tflite.annotations import NHWC
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.handlers.elementary import float_only, like
from convertkit.targets.tflite.handlers.indexing import places_along, static_shape
from convertkit.targets.tflite.handlers.resize import along
from convertkit.targets.tflite.handlers.window import grown, window
from convertkit.targets.tflite.tensor import DYNAMIC, Tensor

windows = Registry()


def seen(win: Window, axis: int, size: int) -> Array:
    """Input places (out, kernel) along one axis, outside of [0, size) where a window reaches into padding."""
    if size == DYNAMIC:
        raise UnknownSize("a window along an axis whose size is only known at run time")
    before, after = win.pads[axis]
    reach = (win.kernel[axis] - 1) * win.dilations[axis] + 1
    count = (size + before + after - reach) // win.strides[axis] + 1
    starts = np.arange(count)[:, None] * win.strides[axis] - before
    return starts + np.arange(win.kernel[axis])[None] * win.dilations[axis]


def largest(b: Builder, x: Tensor, win: Window) -> Tensor:
    """The maximum over each window; a place in the padding is read as the window's own first real one."""
    for axis in range(len(win.kernel)):
        places = seen(win, axis, x.shape[axis + 1])
        real = (places >= 0) & (places < x.shape[axis + 1])
        if not real.any(1).all():
            raise Unsupported("a window that lies in the padding only")
        first = np.take_along_axis(places, real.argmax(1)[:, None], 1)
        columns = np.where(real, places, first).astype(np.int32)
        parts = [b.gather(x, b.constant(column), axis + 1) for column in np.ascontiguousarray(columns.T)]
        x = functools.reduce(b.maximum, parts)
    return x


def averaged(b: Builder, x: Tensor, win: Window, counted: tuple[tuple[int, int], ...]) -> Tensor:
    """The mean over each window; ``counted`` is how much of the padding counts, as zeros."""
    float_only(x, "AveragePool")
    for axis, (before, after) in enumerate(counted):
        size = x.shape[axis + 1]
        places = seen(win, axis, size)
        number = ((places >= -before) & (places < size + after)).sum(1, keepdims=True)
        x = along(b, x, axis + 1, (_membership(places, size) / number).astype(np.float32))
    return x


def summed(b: Builder, x: Tensor, win: Window) -> Tensor:
    """The sum over each window."""
    for axis in range(len(win.kernel)):
        size = x.shape[axis + 1]
        x = along(b, x, axis + 1, _membership(seen(win, axis, size), size).astype(np.float32))
    return x


def _membership(places: Array, size: int) -> Array:
    """A matrix (out, size) that counts how often each window sees each element."""
    return np.asarray((places[:, :, None] == np.arange(size)).sum(1))


def largest_with_places(b: Builder, x: Tensor, win: Window, *, column_major: bool) -> tuple[Tensor, Tensor]:
    """The maximum over each window, and where the first one lies in the flattened NCHW tensor, as int64."""
    float_only(x, "MaxPool with indices")
    static_shape(x, "MaxPool with indices", but_batch=True)
    sizes, channels = x.shape[1:-1], x.shape[-1]
    axes = [seen(win, axis, size) for axis, size in enumerate(sizes)]
    pieces, flat_places = [], []
    for elements in itertools.product(*(range(kernel) for kernel in win.kernel)):
        piece, place = x, np.zeros((1,) * len(sizes), np.int64)
        valid = np.ones((1,) * len(sizes), bool)
        strides = _flat_strides(sizes, column_major)
        for axis, element in enumerate(elements):
            column = axes[axis][:, element]
            view = [len(column) if other == axis else 1 for other in range(len(sizes))]
            valid = valid & ((column >= 0) & (column < sizes[axis])).reshape(view)
            place = place + column.reshape(view) * strides[axis]
            piece = b.gather(piece, b.constant(np.clip(column, 0, sizes[axis] - 1).astype(np.int32)), axis + 1)
        if not valid.all():
            piece = b.select(b.constant(valid[None, ..., None]), piece, like(b, piece, -np.inf))
        pieces.append(piece)
        flat_places.append(np.broadcast_to(place, [len(axis) for axis in axes]))
    best = functools.reduce(b.maximum, pieces)
    # The first window element that equals the maximum: later ones are written first.
    where = b.constant(flat_places[-1][None, ..., None])
    for piece, place in zip(pieces[-2::-1], flat_places[-2::-1], strict=True):
        where = b.select(b.equal(piece, best), b.constant(place[None, ..., None]), where)
    counted = max(x.shape[0], 1)
    offsets = np.arange(counted * channels).reshape(counted, *(1,) * len(sizes), channels) * math.prod(sizes)
    where = b.add(where, b.constant(offsets.astype(np.int64)))
    if x.shape[0] != DYNAMIC:
        return best, where
    samples = b.cast(places_along(b, x, 0), "int64")
    return best, b.add(where, b.mul(samples, b.constant(np.array(channels * math.prod(sizes)))))


def _flat_strides(sizes: tuple[int, ...], column_major: bool) -> list[int]:
    if column_major:
        return [math.prod(sizes[:axis]) for axis in range(len(sizes))]
    return [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]


@windows.lowers_custom("LpPool", domain=NHWC)
def lp_pool(
    b: Builder,
    x: Tensor,
    *,
    kernel_shape: tuple[int, ...],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: tuple[int, ...] | None = None,
    p: int = 2,
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Tensor:
    """The p-norm of each window; padding is zero."""
    float_only(x, "LpPool")
    win = window(x.shape[1:-1], kernel_shape, strides, dilations, pads, auto_pad)
    win = grown(win, x.shape[1:-1]) if ceil_mode else win
    return _root(b, summed(b, _power(b, x, p), win), p)


@windows.lowers_custom("GlobalLpPool", domain=NHWC)
def global_lp_pool(b: Builder, x: Tensor, *, p: int = 2) -> Tensor:
    float_only(x, "GlobalLpPool")
    return _root(b, b.sum(_power(b, x, p), range(1, x.rank - 1), keep_dims=True), p)


def _power(b: Builder, x: Tensor, p: int) -> Tensor:
    if p == 2:
        return b.square(x)
    return b.abs(x) if p == 1 else b.pow(b.abs(x), like(b, x, p))


def _root(b: Builder, x: Tensor, p: int) -> Tensor:
    if p == 2:
        return b.sqrt(x)
    return x if p == 1 else b.pow(x, like(b, x, 1 / p))


@windows.lowers_custom("LRN", domain=NHWC)
def lrn(b: Builder, x: Tensor, *, alpha: float = 0.0001, beta: float = 0.75, bias: float = 1.0, size: int) -> Tensor:
    """The squares of the channels around, added up one by one.

    LiteRT's own LOCAL_RESPONSE_NORMALIZATION takes a running sum, which keeps the rounding of a large channel for all
    that follow.
    """
    float_only(x, "LRN")
    channels, before, behind = x.shape[-1], (size - 1) // 2, size // 2
    padded = b.pad(b.square(x), [*[(0, 0)] * (x.rank - 1), (before, behind)])
    whole = [-1] * (x.rank - 1)
    parts = [b.slice(padded, [*[0] * (x.rank - 1), first], [*whole, channels]) for first in range(size)]
    near = functools.reduce(b.add, parts)
    divisor = b.pow(b.add(b.mul(near, like(b, x, alpha / size)), like(b, x, bias)), like(b, x, beta))
    return b.div(x, divisor)
