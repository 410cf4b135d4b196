"""Slices with constant and computed bounds.

Source: ``tensorflow/lite/kernels/internal/strided_slice_logic.h``, ``slice.cc``, ``reverse.cc``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from convertkit.artifact import Array
from convertkit.converters.tflite.builder import Builder, Tensor
from convertkit.converters.tflite.registry import Registry
from convertkit.errors import SourceError, Unsupported

slices = Registry()

_END = np.iinfo(np.int64).max
_START = np.iinfo(np.int64).min


@slices.reads("SLICE", moves=True)
def slice_(b: Builder, x: Tensor, begin: Tensor, size: Tensor) -> Tensor:
    """``size`` -1 goes to the end of the axis."""
    start, count = b.cast(begin, "int64"), b.cast(size, "int64")
    axes = b.constant(range(x.rank))
    if start.const is not None and count.const is not None:
        ends = np.where(count.const < 0, _END, start.const + np.maximum(count.const, 0))
        return b.op("Slice", [x, start, b.constant(ends), axes])
    negative = b.op("Less", [count, b.scalar(0, count)], dtype="bool")
    ends_at = b.op("Where", [negative, b.scalar(_END, count), b.op("Add", [start, count])], dtype="int64")
    return b.op("Slice", [x, start, ends_at, axes])


@slices.reads("REVERSE_V2", moves=True)
def reverse_v2(b: Builder, x: Tensor, axes: Tensor) -> Tensor:
    count = len(axes.integers)
    bounds = [b.constant([each] * count) for each in (-1, _START, -1)]
    return b.op("Slice", [x, bounds[0], bounds[1], b.constant(axes.integers), bounds[2]])


@slices.reads("REVERSE_SEQUENCE", "ReverseSequenceOptions", moves=True)
def reverse_sequence(b: Builder, x: Tensor, lengths: Tensor, *, seq_dim: int, batch_dim: int) -> Tensor:
    """ONNX reverses along one of the first two axes by lengths along the other."""
    rest = [axis for axis in range(x.rank) if axis not in (seq_dim, batch_dim)]
    perm = (batch_dim, seq_dim, *rest)
    attributes = {"batch_axis": 0, "time_axis": 1}
    y = b.op("ReverseSequence", [b.transpose(x, perm), b.cast(lengths, "int64")], attributes)
    return b.transpose(y, [int(axis) for axis in np.argsort(perm)])


@dataclass(frozen=True, slots=True)
class _Axes:
    """A strided slice, one entry per entry of ``begin``: which input axis each one is about."""

    axes: tuple[int, ...]
    places: tuple[int, ...]
    shrunk: tuple[int, ...]
    new: tuple[int, ...]


def _spread(rank: int, count: int, ellipsis: int, new_axis: int, shrink: int) -> _Axes:
    """Resolve the masks: the ellipsis stands for all axes that no other entry names.

    ``new`` and ``shrunk`` are places in the result before shrinking and in the input.
    """
    masked = [bool(ellipsis >> i & 1) for i in range(count)]
    if sum(masked) > 1:
        raise SourceError("more than one ellipsis")
    added = [bool(new_axis >> i & 1) and not masked[i] for i in range(count)]
    hidden = rank - (count - sum(masked) - sum(added))
    if hidden < 0:
        raise SourceError(f"{count} bounds for {rank} axes")
    axes, places, shrunk, new = [], [], [], []
    axis = result = 0
    for place in range(count):
        if masked[place]:
            axis, result = axis + hidden, result + hidden
        elif added[place]:
            new.append(result)
            result += 1
        else:
            axes.append(axis)
            places.append(place)
            if shrink >> place & 1:
                shrunk.append(axis)
            else:
                result += 1
            axis += 1
    return _Axes(tuple(axes), tuple(places), tuple(shrunk), tuple(new))


@slices.reads("STRIDED_SLICE", "StridedSliceOptions", moves=True)
def strided_slice(
    b: Builder,
    x: Tensor,
    begin: Tensor,
    end: Tensor,
    strides: Tensor,
    *,
    begin_mask: int,
    end_mask: int,
    ellipsis_mask: int,
    new_axis_mask: int,
    shrink_axis_mask: int,
    offset: bool,
) -> Tensor:
    """Masks are bit fields over the entries of ``begin``; a shrunk axis takes one element and goes."""
    if begin.shape is None or len(begin.shape) != 1 or begin.shape[0] < 0:
        raise Unsupported("the number of bounds is unknown")
    steps = strides.known.reshape(-1).astype(np.int64)
    if not steps.all():
        raise SourceError("a stride of zero")
    found = _spread(x.rank, begin.shape[0], ellipsis_mask, new_axis_mask, shrink_axis_mask)
    if found.axes:
        start = _bound(b, begin, begin_mask & ~shrink_axis_mask, np.where(steps > 0, 0, _END))
        stop = b.map("Add", [start, b.cast(end, "int64")]) if offset else end
        stop = _bound(b, stop, end_mask & ~shrink_axis_mask, np.where(steps > 0, _END, _START))
        stop = _after(b, start, stop, shrink_axis_mask)
        bounds = [_picked(b, each, found.places) for each in (start, stop)]
        x = b.op("Slice", [x, *bounds, b.constant(found.axes), b.constant(steps[list(found.places)])])
    if found.shrunk:
        x = b.op("Squeeze", [x, b.constant(found.shrunk)])
    return b.op("Unsqueeze", [x, b.constant(found.new)]) if found.new else x


def _bits(mask: int, count: int) -> Array:
    return np.array([bool(mask >> i & 1) for i in range(count)])


def _bound(b: Builder, bound: Tensor, mask: int, default: Array) -> Tensor:
    """``bound`` with ``default`` where a bit of ``mask`` is set."""
    masked = _bits(mask, len(default))
    value = b.cast(bound, "int64")
    if value.const is not None:
        return b.constant(np.where(masked, default, value.const).astype(np.int64))
    if not masked.any():
        return value
    return b.op("Where", [b.constant(masked), b.constant(default.astype(np.int64)), value], dtype="int64")


def _after(b: Builder, start: Tensor, stop: Tensor, shrink: int) -> Tensor:
    """``stop`` with one element behind ``start`` on shrunk axes; behind -1 lies the end."""
    shrunk = _bits(shrink, start.dims[0] if start.shape else stop.dims[0])
    if not shrunk.any():
        return stop
    if start.const is not None:
        following = np.where(start.const == -1, _END, start.const + 1)
        if stop.const is not None:
            return b.constant(np.where(shrunk, following, stop.const).astype(np.int64))
        return b.op("Where", [b.constant(shrunk), b.constant(following.astype(np.int64)), stop], dtype="int64")
    last = b.op("Equal", [start, b.scalar(-1, start)], dtype="bool")
    one_on = b.op("Where", [last, b.scalar(_END, start), b.op("Add", [start, b.scalar(1, start)])], dtype="int64")
    return b.op("Where", [b.constant(shrunk), one_on, stop], dtype="int64")


def _picked(b: Builder, bounds: Tensor, places: tuple[int, ...]) -> Tensor:
    if bounds.const is not None:
        return b.constant(bounds.const[list(places)])
    if places == tuple(range(len(places))) and bounds.shape == (len(places),):
        return bounds
    return b.op("Gather", [bounds, b.constant(places)])
