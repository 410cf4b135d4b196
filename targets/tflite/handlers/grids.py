"""GridSample, RoiAlign and DeformConv: images read at places that the model computes."""

from __future__ import annotations

import functools
import math

import numpy as np

from convertkit.artifact import Array
from convertkit.errors import UnknownSize, Unsupported
from convertkit.onnx.registry import Registry
from convertkit.targets.tflite.annotations import NHWC
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.handlers.elementary import constant_of, float_only, like
from convertkit.targets.tflite.handlers.indexing import static_shape
from convertkit.targets.tflite.handlers.sampling import (
    TAPS,
    Border,
    Tap,
    as_real,
    clamped,
    flattened,
    image_starts,
    linear_taps,
    pixel_count,
    sampled,
    sizes_of,
    weighted_pixels,
)
from convertkit.targets.tflite.handlers.shapes import cut
from convertkit.targets.tflite.tensor import DYNAMIC, Tensor

grids = Registry()


@grids.lowers_custom("GridSample", domain=NHWC)
def grid_sample(
    b: Builder, x: Tensor, grid: Tensor, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> Tensor:
    """``grid`` (N, …, axes) holds places in [-1, 1], the last axis of the image first."""
    float_only(x, "GridSample")
    if DYNAMIC in (x.shape[-1], grid.shape[-1]):
        raise UnknownSize("GridSample of channels whose number is only known at run time")
    if mode not in TAPS:
        raise Unsupported(f"mode {mode}")
    sizes, channels = sizes_of(b, x), x.shape[-1]
    points = _points(b, grid, max(x.shape[0], grid.shape[0]))
    taps = []
    for axis, size in enumerate(sizes):
        border = Border(as_real(b, size), padding_mode, bool(align_corners))
        taps.append(TAPS[mode](b, _unnormalized(b, _column(b, points, len(sizes) - 1 - axis), border), border))
    starts = image_starts(b, points, sizes, 2)
    pixels = sampled(b, flattened(b, x), starts, sizes, taps)
    shape = (*grid.shape[:-1], channels)
    if shape.count(DYNAMIC) <= 1:
        return b.reshape(pixels, shape)
    return b.reshape_to(pixels, b.sizes([*(b.size_of(grid, axis) for axis in range(grid.rank - 1)), channels]), shape)


def _points(b: Builder, grid: Tensor, images: int) -> Tensor:
    """All places of each image in a row, (images, places, axes)."""
    places = DYNAMIC if DYNAMIC in grid.shape[1:-1] else math.prod(grid.shape[1:-1])
    shape = (images, places, grid.shape[-1])
    if shape.count(DYNAMIC) <= 1:
        return b.reshape(grid, shape)
    return b.reshape_to(grid, b.sizes([b.size_of(grid, 0), DYNAMIC, grid.shape[-1]]), shape)


def _unnormalized(b: Builder, where: Tensor, border: Border) -> Tensor:
    """[-1, 1] as coordinates: the ends are the outer pixels' centres, or the borders."""
    span = border.span(b)
    half = b.mul(span, like(b, span, 0.5)) if isinstance(span, Tensor) else like(b, where, span / 2)
    shifted = b.mul(b.add(where, like(b, where, 1)), half)
    return shifted if border.align_corners else b.sub(shifted, like(b, where, 0.5))


def _column(b: Builder, points: Tensor, column: int) -> Tensor:
    """One of the last axis's elements, without that axis."""
    part = cut(b, points, [slice(None)] * (points.rank - 1) + [slice(column, column + 1)])
    return b.squeeze(part, (points.rank - 1,))


@grids.lowers("RoiAlign", since=(16, 22))
def roi_align(
    b: Builder,
    x: Tensor,
    rois: Tensor,
    batch_indices: Tensor,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Tensor:
    """A fixed number of samples in each bin; the maximum is taken over weighted pixels, as ONNX defines it."""
    float_only(x, "RoiAlign")
    if sampling_ratio <= 0:
        raise Unsupported("sampling_ratio 0: the number of samples would depend on the boxes at run time")
    images = b.transpose(x, (0, 2, 3, 1))
    sizes, channels, count = sizes_of(b, images), x.shape[1], rois.shape[0]
    if channels == DYNAMIC:
        raise UnknownSize("RoiAlign of channels whose number is only known at run time")
    half_pixel = coordinate_transformation_mode == "half_pixel"
    scaled = b.sub(b.mul(rois, like(b, rois, spatial_scale)), like(b, rois, 0.5 if half_pixel else 0.0))
    bins = (output_height, output_width)
    taps = []
    for axis, size in enumerate(sizes):
        begin, end = _column(b, scaled, 1 - axis), _column(b, scaled, 3 - axis)
        places = _bin_places(b, begin, end, bins[axis], sampling_ratio, half_pixel)
        view = (count, places.shape[1], 1) if axis == 0 else (count, 1, places.shape[1])
        taps.append([_viewed(b, tap, view) for tap in _roi_taps(b, places, size)])
    starts = b.mul(b.reshape(b.cast(batch_indices, "int32"), (count, 1, 1)), pixel_count(b, sizes))
    pixels = weighted_pixels(b, flattened(b, images), starts, sizes, taps)
    joined = functools.reduce(b.maximum if mode == "max" else b.add, pixels)
    lines, bins_of_all = _times(count, output_height), _times(count, math.prod(bins))
    split = b.reshape(joined, (lines, sampling_ratio, output_width, sampling_ratio * channels))
    across = b.reduce_max(split, (1,), keep_dims=False) if mode == "max" else b.mean(split, (1,), keep_dims=False)
    cells = b.reshape(across, (bins_of_all, sampling_ratio, channels))
    values = b.reduce_max(cells, (1,), keep_dims=False) if mode == "max" else b.mean(cells, (1,), keep_dims=False)
    result = b.reshape(values, (count, output_height * output_width, channels))
    return b.reshape(b.transpose(result, (0, 2, 1)), (count, channels, *bins))


def _times(count: int, each: int) -> int:
    """So many of each of ``count``, whose number may be known at run time only."""
    return DYNAMIC if count == DYNAMIC else count * each


def _bin_places(b: Builder, begin: Tensor, end: Tensor, bins: int, ratio: int, half_pixel: bool) -> Tensor:
    """Coordinates (boxes, bins · ratio) of the samples along one axis."""
    length = b.sub(end, begin)
    if not half_pixel:
        length = b.maximum(length, like(b, length, 1))
    inner = (np.arange(bins * ratio) + 0.5) / (ratio * bins)
    steps = b.constant(inner.astype(np.float32)[None])
    return b.add(b.expand_dims(begin, 1), b.mul(b.expand_dims(length, 1), steps))


def _roi_taps(b: Builder, where: Tensor, size: int | Tensor) -> list[Tap]:
    """Two neighbours clamped to the image; a sample further out than one pixel counts nothing."""
    zero, end = like(b, where, 0), as_real(b, size)
    below = b.less_equal(where, end if isinstance(end, Tensor) else like(b, where, end))
    present = b.logical_and(b.greater_equal(where, like(b, where, -1)), below)
    taps = linear_taps(b, where, Border(end, "border", True))
    weights = [tap.weight for tap in taps]
    assert weights[0] is not None
    assert weights[1] is not None
    return [Tap(tap.place, b.select(present, weight, zero)) for tap, weight in zip(taps, weights, strict=True)]  # type: ignore[arg-type]


def _viewed(b: Builder, tap: Tap, shape: tuple[int, ...]) -> Tap:
    return Tap(b.reshape(tap.place, shape), None if tap.weight is None else b.reshape(tap.weight, shape))


@grids.lowers("DeformConv", since=(19, 22))
def deform_conv(
    b: Builder,
    x: Tensor,
    w: Tensor,
    offset: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    dilations: tuple[int, ...] | None = None,
    group: int = 1,
    kernel_shape: tuple[int, ...] | None = None,
    offset_group: int = 1,
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Tensor:
    """Pixels sampled for each kernel element, side by side, times the weights."""
    float_only(x, "DeformConv")
    if x.rank != 4:
        raise Unsupported(f"a deformable convolution over {x.rank - 2} spatial axes")
    weights = constant_of(w, "the weights")
    images, channels = static_shape(x, "DeformConv", but_batch=True)[:2]
    kernel = weights.shape[2:]
    base = _kernel_places(kernel, offset.shape[2:], strides or (1, 1), dilations or (1, 1), pads or (0, 0, 0, 0))
    count, points, elements = _times(images, offset_group), math.prod(offset.shape[2:]), math.prod(kernel)
    shifts = b.reshape(offset, (count, elements, 2, points))
    # Each group of channels with its own offsets is an image of its own.
    parts = b.reshape(x, (count, channels // offset_group, *x.shape[2:]))
    rows = flattened(b, b.transpose(parts, (0, 2, 3, 1)))
    taps = [_shifted_taps(b, shifts, axis, base[axis], size) for axis, size in enumerate(x.shape[2:])]
    starts = image_starts(b, parts, x.shape[2:], 3)
    columns = sampled(b, rows, starts, x.shape[2:], taps)
    if mask is not None:
        columns = b.mul(columns, b.reshape(mask, (count, elements, points, 1)))
    product = _products(b, columns, weights, images, offset_group, group, points)
    result = b.reshape(product, (images, points, weights.shape[0]))
    if bias is not None:
        result = b.add(result, bias)
    return b.reshape(b.transpose(result, (0, 2, 1)), (images, weights.shape[0], *offset.shape[2:]))


def _shifted_taps(b: Builder, shifts: Tensor, axis: int, base: Array, size: int) -> list[Tap]:
    """What to read along one axis of ``size`` where ``shifts`` (image, element, axis, point) move ``base``."""
    part = cut(b, shifts, [slice(None), slice(None), slice(axis, axis + 1), slice(None)])
    where = b.add(b.reshape(part, (*shifts.shape[:2], shifts.shape[3])), b.constant(base))
    # Far outside there are only zeros; nearer numbers stay exact.
    return linear_taps(b, clamped(b, where, -2, size + 1), Border(size, "zeros", True))


def _kernel_places(
    kernel: tuple[int, ...],
    out: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    pads: tuple[int, ...],
) -> list[Array]:
    """For each axis where kernel elements lie without offsets: float32 (1, kernel elements, points)."""
    places = []
    for axis in range(2):
        inside = np.arange(kernel[axis]) * dilations[axis]
        corner = np.arange(out[axis]) * strides[axis] - pads[axis]
        view_in, view_out = [1, 1, 1, 1], [1, 1, 1, 1]
        view_in[axis], view_out[axis + 2] = kernel[axis], out[axis]
        grid = np.broadcast_to(inside.reshape(view_in) + corner.reshape(view_out), (*kernel, *out))
        places.append(grid.reshape(1, math.prod(kernel), math.prod(out)).astype(np.float32))
    return places


def _products(
    b: Builder,
    columns: Tensor,
    weights: Array,
    images: int,
    offset_group: int,
    group: int,
    points: int,
) -> Tensor:
    """Columns (images · offset groups, kernel, points, channels) times weights (O, I, kernel…), group by group."""
    taps, per_offset = columns.shape[1], columns.shape[3]
    split = b.reshape(columns, (images, offset_group, taps, points * per_offset))
    moved = b.reshape(b.transpose(split, (0, 2, 1, 3)), (_times(images, taps), offset_group, points, per_offset))
    rows = b.reshape(b.transpose(moved, (0, 2, 1, 3)), (images, taps, points, offset_group * per_offset))
    rows = b.transpose(rows, (0, 2, 1, 3))
    outs, ins = weights.shape[0] // group, weights.shape[1]
    results = []
    for number in range(group):
        part = cut(b, rows, [slice(None)] * 3 + [slice(number * ins, (number + 1) * ins)])
        kernel = weights[number * outs : (number + 1) * outs].reshape(outs, ins, taps).transpose(0, 2, 1)
        flat = b.reshape(part, (_times(images, points), taps * ins))
        results.append(b.fully_connected(flat, b.constant(np.ascontiguousarray(kernel).reshape(outs, -1)), None))
    return b.concatenation(results, 1)
