"""Shapes, constants, repetition and cuts."""

from __future__ import annotations

import numpy as np

from convertkit.artifact import Array
from convertkit.errors import UnknownSize, Unsupported
from convertkit.onnx.registry import Registry
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.handlers.elementary import as_accepted, constant_ints
from convertkit.targets.tflite.handlers.parts import computed_parts, equal_parts
from convertkit.targets.tflite.tensor import DYNAMIC, Tensor

shapes = Registry()

_MAX_SLICED_RANK = 5
"""SLICE and STRIDED_SLICE take up to five axes."""


@shapes.lowers("Shape", since=(15, 19, 21, 23, 24, 25))
def shape(b: Builder, x: Tensor, *, end: int | None = None, start: int = 0) -> Tensor:
    sizes = b.shape_of(x, "int64")
    first, last, _ = slice(start, end).indices(x.rank)
    return b.slice(sizes, (first,), (max(last - first, 0),))


@shapes.lowers("Constant", since=(13, 19, 21, 23, 24, 25))
def constant(
    b: Builder,
    *,
    sparse_value: object = None,
    value: Array | None = None,
    value_float: float | None = None,
    value_floats: tuple[float, ...] | None = None,
    value_int: int | None = None,
    value_ints: tuple[int, ...] | None = None,
    value_string: str | None = None,
    value_strings: tuple[str, ...] | None = None,
) -> Tensor:
    """A constant that is an output of its graph, or stands in a body; others are initializers."""
    if value is not None:
        return b.constant(value)
    floats = value_float if value_float is not None else value_floats
    if floats is not None:
        return b.constant(np.array(floats, np.float32))
    ints = value_int if value_int is not None else value_ints
    if ints is not None:
        return b.constant(np.array(ints, np.int64))
    raise Unsupported("a constant of strings, or a sparse one")


@shapes.lowers("Size", since=(13, 19, 21, 23, 24, 25))
def size(b: Builder, x: Tensor) -> Tensor:
    if x.is_static:
        return b.constant(np.array(x.size, np.int64))
    return b.reduce_prod(b.shape_of(x, "int64"), (0,), keep_dims=False)


@shapes.lowers("ConstantOfShape", since=(9, 20, 21, 23, 24, 25))
def constant_of_shape(b: Builder, sizes: Tensor, *, value: Array | None = None) -> Tensor:
    filling = np.zeros(1, np.float32) if value is None else value
    scalar = b.constant(filling.reshape(()))
    if sizes.constant is None:
        return b.fill(b.cast(sizes, "int32"), scalar, _known_sizes(b, sizes))
    return b.constant(np.broadcast_to(filling.reshape(()), constant_ints(sizes, "the shape")))


@shapes.lowers("Range", since=11)
def range_(b: Builder, start: Tensor, limit: Tensor, delta: Tensor) -> Tensor:
    if start.constant is not None and limit.constant is not None and delta.constant is not None:
        values = np.arange(start.constant.item(), limit.constant.item(), delta.constant.item())
        return b.constant(values.astype(start.constant.dtype))
    return b.range(b.reshape(start, ()), b.reshape(limit, ()), b.reshape(delta, ()), DYNAMIC)


@shapes.lowers("Tile", since=13)
def tile(b: Builder, x: Tensor, repeats: Tensor) -> Tensor:
    if repeats.constant is None:
        (wide,) = as_accepted(b, "TILE", x)
        return b.cast(b.tile_by(wide, b.cast(repeats, "int32")), x.dtype)
    counts = constant_ints(repeats, "the repeats")
    if all(count == 1 for count in counts):
        return x
    (wide,) = as_accepted(b, "TILE", x)
    return b.tile(wide, counts) if wide is x else b.cast(b.tile(wide, counts), x.dtype)


@shapes.lowers("Expand", since=13)
def expand(b: Builder, x: Tensor, sizes: Tensor) -> Tensor:
    """BROADCAST_TO the common shape of both."""
    if sizes.constant is None or not x.is_static:
        return _expand_at_run_time(b, x, sizes)
    wanted = constant_ints(sizes, "the shape")
    return b.broadcast_to(x, np.broadcast_shapes(x.shape, wanted))


def _expand_at_run_time(b: Builder, x: Tensor, sizes: Tensor) -> Tensor:
    """Sizes that are known on either side stay known: a depthwise convolution behind it needs its channels."""
    common = b.broadcast_args(b.shape_of(x), b.cast(sizes, "int32"))
    wanted = _known_sizes(b, sizes)
    pairs = zip(*((1,) * (common.shape[0] - len(each)) + tuple(each) for each in (x.shape, wanted)), strict=True)
    shape = tuple(0 if 0 in pair else max(pair) if max(pair) > 1 or DYNAMIC not in pair else DYNAMIC for pair in pairs)
    return b.broadcast_to_sizes(x, common, shape)


def _known_sizes(b: Builder, sizes: Tensor) -> tuple[int, ...]:
    """What is known of computed sizes: constants, and those of the tensor whose shape they are."""
    if sizes.constant is not None:
        return tuple(int(size) for size in sizes.constant.reshape(-1))
    producer = b.producer(sizes)
    while producer is not None and producer.code == "CAST" and producer.inputs[0] is not None:
        producer = b.producer(producer.inputs[0])
    if producer is not None and producer.code == "CONCATENATION":
        return tuple(size for each in producer.inputs if each is not None for size in _known_sizes(b, each))
    if producer is not None and producer.code == "SHAPE" and producer.inputs[0] is not None:
        return producer.inputs[0].shape
    if producer is not None and producer.code == "GATHER" and (picked := _picked(b, *producer.inputs[:2])):
        return picked
    return (DYNAMIC,) * rank_of(sizes)


def _picked(b: Builder, sizes: Tensor | None, places: Tensor | None) -> tuple[int, ...]:
    """Of computed sizes those at constant places, as in another layout; empty where the places are computed."""
    if sizes is None or places is None or places.constant is None or sizes.rank != 1:
        return ()
    known = _known_sizes(b, sizes)
    return tuple(known[place] for place in places.constant.reshape(-1))


def rank_of(sizes: Tensor) -> int:
    """How many sizes a computed tensor holds; ``Unsupported`` where that is computed, too."""
    if sizes.shape[0] == DYNAMIC:
        raise Unsupported("a shape of which even the number of axes is computed at run time")
    return sizes.shape[0]


@shapes.lowers("Split", since=18)
def split(
    b: Builder, x: Tensor, sizes: Tensor | None = None, *, axis: int = 0, num_outputs: int | None = None
) -> tuple[Tensor, ...]:
    """Parts of given sizes, or equal ones, of which the last may be smaller."""
    axis %= x.rank
    count, total = num_outputs or len(b.results), x.shape[axis]
    if (sizes is None and total == DYNAMIC) or (sizes is not None and sizes.constant is None):
        if x.rank > _MAX_SLICED_RANK:
            raise UnknownSize("a split into parts whose size is only known at run time, of more than five axes")
        (wide,) = as_accepted(b, "SLICE", x)
        pieces = equal_parts(b, wide, axis, count) if sizes is None else computed_parts(b, wide, axis, sizes, count)
        return tuple(b.cast(piece, x.dtype) if wide is not x else piece for piece in pieces)
    if sizes is not None:
        parts = constant_ints(sizes, "the sizes of the parts")
    else:
        part = -(-total // count)
        parts = tuple(max(min(part, total - part * place), 0) for place in range(count))
    (wide,) = as_accepted(b, "SPLIT_V", x)
    return tuple(b.cast(piece, x.dtype) if wide is not x else piece for piece in b.split(wide, axis, parts))


@shapes.lowers("Slice", since=13)
def slice_(
    b: Builder,
    x: Tensor,
    starts: Tensor,
    ends: Tensor,
    axes: Tensor | None = None,
    steps: Tensor | None = None,
) -> Tensor:
    """SLICE for steps of one, else STRIDED_SLICE."""
    if starts.constant is None or ends.constant is None:
        return _slice_at_run_time(b, x, starts, ends, axes, steps)
    firsts, lasts = constant_ints(starts, "the start"), constant_ints(ends, "the end")
    places = tuple(range(len(firsts))) if axes is None else constant_ints(axes, "the axes")
    strides = (1,) * len(firsts) if steps is None else constant_ints(steps, "the steps")
    cuts = [slice(None)] * x.rank
    for axis, first, last, stride in zip(places, firsts, lasts, strides, strict=True):
        cuts[axis % x.rank] = slice(max(min(first, _FAR), -_FAR), _open_end(last, stride), stride)
    return cut(b, x, cuts)


def _slice_at_run_time(
    b: Builder, x: Tensor, starts: Tensor, ends: Tensor, axes: Tensor | None, steps: Tensor | None
) -> Tensor:
    """Computed bounds: the kernel counts from the end and clamps as ONNX does, for positive steps."""
    if axes is None and starts.shape[0] == DYNAMIC:
        raise Unsupported("computed starts, of which nothing says how many there are")
    places = tuple(range(starts.shape[0])) if axes is None else constant_ints(axes, "the axes")
    strides = (1,) * len(places) if steps is None else constant_ints(steps, "the steps")
    if any(stride < 0 for stride in strides) or x.rank > _MAX_SLICED_RANK:
        raise Unsupported("a computed start or end with a negative step, or of more than five axes")
    bounds = []
    for bound in (starts, ends):
        # Ends beyond int32 mean all there is.
        limited = b.minimum(bound, b.constant(np.array(2**31 - 1, bound.dtype)))
        bounds.append(b.cast(b.maximum(limited, b.constant(np.array(-(2**31) + 1, bound.dtype))), "int32"))
    firsts: list[int | Tensor] = [0] * x.rank
    lasts: list[int | Tensor] = [0] * x.rank
    steps_all, shape = [1] * x.rank, list(x.shape)
    for number, axis in enumerate(places):
        firsts[axis], lasts[axis] = (b.slice(bound, (number,), (1,)) for bound in bounds)
        steps_all[axis], shape[axis] = strides[number], DYNAMIC
    untouched = sum(1 << axis for axis, first in enumerate(firsts) if isinstance(first, int))
    options = {
        "begin_mask": untouched,
        "end_mask": untouched,
        "ellipsis_mask": 0,
        "new_axis_mask": 0,
        "shrink_axis_mask": 0,
        "offset": False,
    }
    inputs = (x, b.sizes(firsts), b.sizes(lasts), b.ints(steps_all))
    return b.emit("STRIDED_SLICE", inputs, tuple(shape), x.dtype, options, x.quantization)


_FAR = 2**31 - 1
"""Starts and ends beyond int32 are beyond every axis."""


def _open_end(last: int, stride: int) -> int | None:
    """None for an end so far that it means all there is."""
    return None if (last >= _FAR and stride > 0) or (last <= -_FAR and stride < 0) else last


def cut(b: Builder, x: Tensor, cuts: list[slice]) -> Tensor:
    """NumPy's basic slicing by one slice for each axis."""
    if not any(_cuts(size, part) for size, part in zip(x.shape, cuts, strict=True)):
        return x
    touched = [axis for axis, part in enumerate(cuts) if _cuts(x.shape[axis], part)]
    if x.rank > _MAX_SLICED_RANK:
        return _cut_flattened(b, x, cuts, touched)
    if any(x.shape[axis] == DYNAMIC for axis in touched):
        return _cut_unknown(b, x, cuts)
    bounds = [part.indices(size) if size != DYNAMIC else (0, DYNAMIC, 1) for size, part in zip(x.shape, cuts)]
    shape = tuple(size if size == DYNAMIC else len(range(*bound)) for size, bound in zip(x.shape, bounds, strict=True))
    if all(step == 1 for _, _, step in bounds):
        return b.slice(x, [first for first, _, _ in bounds], shape)
    # An end of -1 would mean the last element; behind the first one there is only an open end.
    open_ends = sum(1 << axis for axis, (_, last, _) in enumerate(bounds) if last < 0)
    firsts, lasts, steps = zip(*bounds, strict=True)
    return b.strided_slice(x, firsts, [max(last, 0) for last in lasts], steps, shape, end_mask=open_ends)


def _cuts(size: int, part: slice) -> bool:
    if size != DYNAMIC:
        return part.indices(size) != (0, size, 1)
    return part.start not in (None, 0) or part.stop is not None or part.step not in (None, 1)


def _cut_unknown(b: Builder, x: Tensor, cuts: list[slice]) -> Tensor:
    """The kernel clamps starts and ends to sizes that are only known at run time, as ONNX does."""
    firsts = [part.start if part.start is not None else 0 for part in cuts]
    lasts = [part.stop if part.stop is not None else 0 for part in cuts]
    steps = [part.step if part.step is not None else 1 for part in cuts]
    open_starts = sum(1 << axis for axis, part in enumerate(cuts) if part.start is None)
    open_ends = sum(1 << axis for axis, part in enumerate(cuts) if part.stop is None)
    shape = tuple(len(range(*part.indices(size))) if size != DYNAMIC else DYNAMIC for size, part in zip(x.shape, cuts))
    return b.strided_slice(x, firsts, lasts, steps, shape, begin_mask=open_starts, end_mask=open_ends)


def _cut_flattened(b: Builder, x: Tensor, cuts: list[slice], touched: list[int]) -> Tensor:
    """One axis after the other, as the middle one of three."""
    if x.shape.count(DYNAMIC) > 1:
        raise UnknownSize(f"a cut of rank {x.rank} with more than one dynamic dimension")
    for axis in touched:
        before, after = _together(x.shape[:axis]), _together(x.shape[axis + 1 :])
        flat = b.reshape(x, (before, x.shape[axis], after))
        part = cut(b, flat, [slice(None), cuts[axis], slice(None)])
        x = b.reshape(part, (*x.shape[:axis], part.shape[1], *x.shape[axis + 1 :]))
    return x


def _together(sizes: tuple[int, ...]) -> int:
    """The size of several axes as one."""
    return DYNAMIC if DYNAMIC in sizes else int(np.prod(sizes))


@shapes.lowers("CenterCropPad", since=18)
def center_crop_pad(b: Builder, x: Tensor, sizes: Tensor, *, axes: tuple[int, ...] | None = None) -> Tensor:
    """Cut or pad with zeros around the middle; an odd element goes to the end when padding, and when cropping."""
    wanted = constant_ints(sizes, "the shape")
    places = tuple(range(x.rank)) if axes is None else tuple(axis % x.rank for axis in axes)
    cuts = [slice(None)] * x.rank
    pads = [(0, 0)] * x.rank
    for axis, target in zip(places, wanted, strict=True):
        if x.shape[axis] == DYNAMIC:
            raise UnknownSize("an axis to cut or pad whose size is only known at run time")
        surplus = x.shape[axis] - target
        if surplus > 0:
            cuts[axis] = slice(surplus // 2, surplus // 2 + target)
        else:
            pads[axis] = (-surplus // 2, -surplus - (-surplus // 2))
    return b.pad(cut(b, x, cuts), pads)


@shapes.lowers("Det", since=(11, 22))
def det(b: Builder, x: Tensor) -> Tensor:
    """Expansion by minors, for matrices up to 4 × 4."""
    rows = x.shape[-1]
    if rows == DYNAMIC or x.shape.count(DYNAMIC) > 1:
        raise UnknownSize("determinants of sizes that are only known at run time")
    if rows > 4:
        raise Unsupported(f"the determinant of {rows} × {rows} matrices; expansion by minors is exact up to 4 × 4")
    flat = b.reshape(x, (-1, rows, rows)) if x.rank != 3 else x
    result = _minor(b, flat, tuple(range(rows)), 0)
    return b.reshape(result, x.shape[:-2])


def _minor(b: Builder, x: Tensor, columns: tuple[int, ...], row: int) -> Tensor:
    total: Tensor | None = None
    for place, column in enumerate(columns):
        entry = b.reshape(b.slice(x, (0, row, column), (x.shape[0], 1, 1)), (x.shape[0],))
        rest = columns[:place] + columns[place + 1 :]
        term = b.mul(entry, _minor(b, x, rest, row + 1)) if rest else entry
        total = term if total is None else (b.sub if place % 2 else b.add)(total, term)
    assert total is not None
    return total


@shapes.lowers("AffineGrid", since=20)
def affine_grid(b: Builder, theta: Tensor, sizes: Tensor, *, align_corners: int = 0) -> Tensor:
    """A constant grid of homogeneous coordinates times the transposed matrices."""
    wanted = constant_ints(sizes, "the size")
    axes = [_coordinates(count, bool(align_corners)) for count in wanted[2:]]
    mesh = np.meshgrid(*axes, indexing="ij")[::-1]
    points = np.stack([*mesh, np.ones_like(mesh[0])], -1).reshape(1, -1, len(axes) + 1).astype(np.float32)
    grid = np.broadcast_to(points, (wanted[0], *points.shape[1:]))
    product = b.batch_matmul(b.constant(np.ascontiguousarray(grid)), b.transpose(theta, (0, 2, 1)))
    return b.reshape(product, (wanted[0], *wanted[2:], len(axes)))


def _coordinates(count: int, align_corners: bool) -> Array:
    """Positions in [-1, 1]: of the corners' pixels' centres, or of pixels' centres between the borders."""
    if align_corners:
        return np.linspace(-1, 1, count) if count > 1 else np.zeros(1) - 1
    return (np.arange(count) * 2 + 1) / count - 1
