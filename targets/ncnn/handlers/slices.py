"""Parts of a blob: Crop, the layer Slice, Padding."""

from __future__ import annotations

import math

import numpy as np

from convertkit.artifact import Array
from convertkit.errors import Unsupported
from convertkit.onnx.registry import Registry
from convertkit.targets.ncnn.builder import Builder, weight
from convertkit.targets.ncnn.handlers.moves import as_shape, concatenated
from convertkit.targets.ncnn.tensor import Tensor, constant

slices = Registry()

_MOST_PARTS = 64
_BORDERS = {"constant": 0, "edge": 1, "reflect": 2}
_KEYS = {0: (2, 3), 1: (0, 1), 2: (7, 8)}
"""Keys of the elements before and behind, of the innermost axis first."""


def cropped(b: Builder, x: Tensor, axis: int, start: int, stop: int) -> Tensor:
    """The elements from ``start`` up to ``stop`` of an axis of ONNX."""
    place = axis % x.rank
    shape = tuple(stop - start if each == place else size for each, size in enumerate(x.shape))
    if shape == x.shape:
        return x
    if math.prod(shape) == 0:
        raise Unsupported("a part without elements: ncnn has no empty blobs")
    found, (where,) = b.along(x, [axis])
    sizes = tuple(stop - start if each == where else size for each, size in enumerate(found.sizes))
    return b.layer("Crop", [found], shape, sizes, {9: (start,), 10: (stop,), 11: (where,)})


@slices.lowers("Slice", since=13)
def slice_(b: Builder, x: Tensor, starts: Tensor, ends: Tensor, axes: Tensor | None, steps: Tensor | None) -> Tensor:
    """Larger steps are an axis of their own, steps of -1 are the layer Flip; others have no layer."""
    count = starts.known.size
    numbers = [[int(each) for each in value.known.reshape(-1)] for value in (starts, ends)]
    places = list(range(count)) if axes is None else [int(each) for each in axes.known.reshape(-1)]
    strides = [1] * count if steps is None else [int(each) for each in steps.known.reshape(-1)]
    for start, stop, axis, step in zip(*numbers, places, strides, strict=True):
        size = x.shape[axis % x.rank]
        low, high, jump = slice(start, stop, step).indices(size)
        taken = range(low, high, jump)
        if jump > 1 and 1 < len(taken) <= size // jump:
            x = _thinned(b, x, axis % x.rank, taken)
            continue
        if abs(jump) != 1 and len(taken) != 1:
            raise Unsupported(f"steps of {jump}: ncnn's Crop has steps of 1")
        first = min(taken, default=0)
        x = cropped(b, x, axis, first, first + len(taken))
        if jump < 0 and len(taken) > 1:
            x = _turned(b, x, axis)
    return x


def _thinned(b: Builder, x: Tensor, axis: int, taken: range) -> Tensor:
    """One element of each step, where as many whole steps fit."""
    count, step = len(taken), taken.step
    first = min(taken.start, x.shape[axis] - count * step)
    part = cropped(b, x, axis, first, first + count * step)
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    split = as_shape(b, part, (math.prod(before), count, step, math.prod(after)))
    place = taken.start - first
    return as_shape(b, cropped(b, split, 2, place, place + 1), (*before, count, *after))


def _turned(b: Builder, x: Tensor, axis: int) -> Tensor:
    """The elements of an axis from the last to the first."""
    found, (where,) = b.along(x, [axis])
    return b.layer("Flip", [found], x.shape, found.sizes, {0: (where,)})


def _parts(b: Builder, x: Tensor, sizes: tuple[int, ...], axis: int) -> tuple[Tensor, ...]:
    """Parts one after the other; those without elements are constants."""
    place = axis % x.rank
    found, (where,) = b.along(x, [axis])
    shapes = [(*x.shape[:place], size, *x.shape[place + 1 :]) for size in sizes]
    blobs = [(*found.sizes[:where], size, *found.sizes[where + 1 :]) for size in sizes]
    kept = [number for number, size in enumerate(sizes) if size]
    if len(kept) == 1:
        made: tuple[Tensor, ...] = (x,)
    else:
        outputs = [(shapes[number], blobs[number]) for number in kept]
        made = b.layers_of("Slice", [found], outputs, {0: tuple(sizes[number] for number in kept), 1: where})
    parts = dict(zip(kept, made, strict=True))
    return tuple(parts.get(number, constant(np.zeros(shape, np.float32))) for number, shape in enumerate(shapes))


@slices.lowers("Split", since=18)
def split(
    b: Builder, x: Tensor, sizes: Tensor | None, *, axis: int = 0, num_outputs: int | None = None
) -> tuple[Tensor, ...]:
    whole = x.shape[axis % x.rank]
    if sizes is not None:
        return _parts(b, x, tuple(int(size) for size in sizes.known.reshape(-1)), axis)
    count = num_outputs or 1
    each = -(-whole // count)
    return _parts(b, x, tuple(min(each, whole - each * place) for place in range(count)), axis)


@slices.lowers("Gather", since=13)
def gather(b: Builder, x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    """Stored places, each run of neighbours a part; rows of a stored table where an input has the places."""
    place = axis % x.rank
    if indices.whole and x.array is not None and x.rank == 2 and place == 0:
        return _embedded(b, x.array, indices)
    if indices.array is None:
        raise Unsupported("places that are computed at run time: ncnn computes in float32 alone")
    wanted = [int(each) % x.shape[place] for each in indices.array.reshape(-1)]
    shape = (*x.shape[:place], *indices.shape, *x.shape[place + 1 :])
    runs: list[tuple[int, int]] = []
    for each in wanted:
        if runs and runs[-1][1] == each:
            runs[-1] = runs[-1][0], each + 1
        else:
            runs.append((each, each + 1))
    if not 0 < len(runs) <= _MOST_PARTS:
        raise Unsupported(f"{len(runs)} parts that are not neighbours: at most {_MOST_PARTS} are written as parts")
    flat = (*x.shape[:place], len(wanted), *x.shape[place + 1 :])
    parts = [cropped(b, x, axis, *run) for run in runs]
    return as_shape(b, concatenated(b, parts, place, flat), shape)


def _embedded(b: Builder, table: Array, places: Tensor) -> Tensor:
    """The blob of integers as it is given: in one dimension."""
    count, width = math.prod(places.shape), table.shape[1]
    parameters = {0: width, 1: len(table), 2: 0, 3: table.size}
    return b.embedded(places, (*places.shape, width), (count, width), parameters, weight(table))


@slices.lowers("Pad", since=(18, 19, 21, 23, 24, 25))
def pad(
    b: Builder, x: Tensor, pads: Tensor, value: Tensor | None, axes: Tensor | None, *, mode: str = "constant"
) -> Tensor:
    """Of the three innermost axes; the outermost of three takes a constant alone."""
    places = range(x.rank) if axes is None else [int(axis) % x.rank for axis in axes.known.reshape(-1)]
    numbers = [int(each) for each in pads.known.reshape(-1)]
    border = {axis: (numbers[place], numbers[place + len(places)]) for place, axis in enumerate(places)}
    border = {axis: each for axis, each in border.items() if any(each)}
    if any(number < 0 for each in border.values() for number in each):
        raise Unsupported("negative padding")
    if mode not in _BORDERS:
        raise Unsupported(f"mode {mode}: ncnn's Padding has {', '.join(_BORDERS)}")
    if not border:
        return x
    found, where = b.along(x, list(border))
    parameters: dict[int, int | float | tuple[int, ...]] = {4: _BORDERS[mode]}
    for at, each in zip(where, border.values(), strict=True):
        inner = len(found.sizes) - 1 - at
        if inner not in _KEYS or (inner == 2 and mode != "constant"):
            raise Unsupported("padding of the fourth axis, or of channels by what is there: ncnn's Padding has neither")
        parameters |= dict(zip(_KEYS[inner], each, strict=True))
    if mode == "constant":
        parameters[5] = 0.0 if value is None else float(np.asarray(value.known, np.float32).reshape(-1)[0])
    grown = {at: sum(each) for at, each in zip(where, border.values(), strict=True)}
    sizes = tuple(size + grown.get(at, 0) for at, size in enumerate(found.sizes))
    shape = tuple(size + sum(border.get(axis, (0, 0))) for axis, size in enumerate(x.shape))
    return b.layer("Padding", [found], shape, sizes, parameters)
