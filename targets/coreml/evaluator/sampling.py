"""Images of other sizes.

Source: coremltools, mil/ops/defs, image_resizing.py.
"""

from __future__ import annotations

import numpy as np

from convertkit.artifact import Array
from convertkit.targets.coreml.evaluator.table import Table

sampling = Table()


@sampling.computes("upsample_nearest_neighbor")
def _upsample_nearest_neighbor(
    *, x: Array, scale_factor_height: Array | None = None, scale_factor_width: Array | None = None
) -> Array:
    for axis, factor in ((-2, scale_factor_height), (-1, scale_factor_width)):
        if factor is not None:
            size = x.shape[axis]
            places = np.floor(np.arange(int(np.floor(size * float(factor)))) / float(factor)).astype(np.int64)
            x = np.take(x, np.minimum(places, size - 1), axis)
    return x


@sampling.computes("upsample_bilinear")
def _upsample_bilinear(
    *,
    x: Array,
    scale_factor_height: Array | None = None,
    scale_factor_width: Array | None = None,
    align_corners: Array | None = None,
    half_pixel_centers: Array | None = None,
) -> Array:
    """``half_pixel_centers`` is the opposite of ``align_corners`` where it is not given."""
    aligned = align_corners is None or bool(align_corners)
    centred = not aligned if half_pixel_centers is None else bool(half_pixel_centers)
    for axis, factor in ((-2, scale_factor_height), (-1, scale_factor_width)):
        if factor is not None:
            size = x.shape[axis]
            count = int(np.floor(size * float(factor)))
            x = interpolated(x, axis, places(size, count, float(factor), aligned=aligned, centred=centred))
    return x


def places(size: int, count: int, factor: float, *, aligned: bool, centred: bool) -> Array:
    """Where each of ``count`` results lies between ``size`` elements."""
    steps = np.arange(count, dtype=np.float64)
    if aligned:
        return steps * ((size - 1) / (count - 1) if count > 1 else 0.0)
    return (steps + 0.5) / factor - 0.5 if centred else steps / factor


def interpolated(x: Array, axis: int, at: Array) -> Array:
    """``x`` at these places along ``axis``, linearly between two neighbours."""
    size = x.shape[axis]
    held = np.clip(at, 0, size - 1)
    low = np.floor(held).astype(np.int64)
    high = np.minimum(low + 1, size - 1)
    share = (held - low).astype(np.float32).reshape(-1, *[1] * (-axis - 1))
    return np.asarray(np.take(x, low, axis) * (1 - share) + np.take(x, high, axis) * share)


@sampling.computes("resample")
def _resample(
    *,
    x: Array,
    coordinates: Array,
    sampling_mode: Array,
    padding_mode: Array,
    padding_value: Array,
    coordinates_mode: Array,
    align_corners: Array,
) -> Array:
    """Bilinear, at places from -1 to 1: what the target writes."""
    if (str(sampling_mode), str(coordinates_mode)) != ("bilinear", "normalized_minus_one_to_one"):
        raise ValueError(f"mode {sampling_mode} at {coordinates_mode} places is not one that is written here")
    sizes = np.array(x.shape[:1:-1])  # width, height
    spans = sizes - 1 if bool(align_corners) else sizes
    at = (coordinates.astype(np.float64) + 1) / 2 * spans - (0.0 if bool(align_corners) else 0.5)
    low = np.floor(at).astype(np.int64)
    share = at - low
    total = np.zeros(x.shape[:2] + coordinates.shape[1:3])
    for corner in map(np.array, np.ndindex(2, 2)):
        places = low + corner
        weights = np.abs(1 - corner - share).prod(-1)
        inside = ((places >= 0) & (places < sizes)).all(-1)
        columns, rows = (_padded(places[..., axis], int(sizes[axis]), str(padding_mode)) for axis in (0, 1))
        read = x[np.arange(len(x))[:, None, None], :, rows, columns].transpose(0, 3, 1, 2)
        if str(padding_mode) == "constant":
            read = np.where(inside[:, None], read, padding_value)
        total += weights[:, None] * read
    return total.astype(x.dtype)


def _padded(places: Array, size: int, mode: str) -> Array:
    """The element that stands at a place, which may lie outside."""
    if mode in ("constant", "border"):
        return np.clip(places, 0, size - 1)
    period = max(2 * (size - 1), 1) if mode == "reflection" else 2 * size
    within = np.mod(places, period)
    last = 0 if mode == "reflection" else 1
    return np.where(within < size, within, period - last - within)
