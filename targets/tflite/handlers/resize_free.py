"""Resize where sizes before or after are only known at run time: the kernels that divide them, or gathers."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from convertkit.errors import UnknownSize, Unsupported
from convertkit.onnx.interpolation import Axis, Method, matrix
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.handlers.elementary import float_only, like
from convertkit.targets.tflite.handlers.indexing import gathered
from convertkit.targets.tflite.tensor import DYNAMIC, Tensor


@dataclass(frozen=True, slots=True)
class FreeAxis:
    """The size of one resized axis as an int32 vector of one element, and the factor where it is a whole number."""

    wanted: Tensor
    factor: int | None


def free_axes(
    b: Builder, x: Tensor, axes: tuple[int, ...], scales: Tensor | None, sizes: Tensor | None
) -> dict[int, FreeAxis]:
    """By axis of ``x``, which sizes are wanted; an axis that is not named keeps its own."""
    if sizes is not None:
        wanted = b.cast(sizes, "int32")
        return {axis: FreeAxis(b.slice(wanted, (place,), (1,)), None) for place, axis in enumerate(axes)}
    if scales is None or scales.constant is None:
        raise Unsupported("the scales are computed at run time; TFLite needs them as constants")
    found = {}
    for axis, scale in zip(axes, np.asarray(scales.constant).tolist(), strict=True):
        if scale != int(scale):
            raise UnknownSize(f"an axis whose size is only known at run time, times {scale:g}: only whole factors")
        if scale != 1:
            found[axis] = FreeAxis(b.mul(b.size_of(x, axis), b.ints([int(scale)])), int(scale))
    return found


def resized_at_run_time(b: Builder, x: Tensor, axes: Mapping[int, FreeAxis], method: Method) -> Tensor:
    """``x`` with each of ``axes`` resized; a refusal where only known sizes could tell the places."""
    if method.mode == "linear":
        return _linear(b, x, axes, method)
    if method.mode == "cubic":
        return _cubic(b, x, axes, method)
    if method.mode != "nearest" or not _is_floor(method, axes):
        raise UnknownSize(
            f"a resized axis whose size is only known at run time, with mode {method.mode}, "
            f"{method.coordinates} and {method.nearest}: exact is nearest, asymmetric and floor"
        )
    for axis, free in axes.items():
        x = gathered(b, x, _floors(b, x, axis, free), axis)
    return x


_PHASED = frozenset({"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "asymmetric"})
"""Coordinates that repeat with each element of the input, where the factor is a whole number of 2 or more."""
_PROBE = 9
"""A size that has an element far from both ends: its weights are those of all elements."""


def _cubic(b: Builder, x: Tensor, axes: Mapping[int, FreeAxis], method: Method) -> Tensor:
    """For a whole factor: each of its phases is one weighted sum of neighbours, whatever the size."""
    factors = {axis: free.factor for axis, free in axes.items() if free.factor is not None}
    if len(factors) < len(axes) or method.coordinates not in _PHASED or method.exclude_outside:
        raise UnknownSize(
            "a resized axis whose size is only known at run time, with mode cubic: exact are whole factors with "
            "half_pixel or asymmetric, without exclude_outside"
        )
    float_only(x, "Resize with mode cubic")
    for axis, factor in factors.items():
        x = _cubic_along(b, x, axis, factor, method)
    return x


def _cubic_along(b: Builder, x: Tensor, axis: int, factor: int, method: Method) -> Tensor:
    """Phases one after the other, (factor × size), then in turns."""
    weights = matrix(Axis(_PROBE, _PROBE * factor, float(factor)), method)
    middle = _PROBE // 2
    rows = weights[middle * factor : (middle + 1) * factor]
    size = b.reshape(b.size_of(x, axis), ())
    zero, one = (b.constant(np.array(number, np.int32)) for number in (0, 1))
    count, last = b.range(zero, size, one, DYNAMIC), b.sub(size, one)
    taps = {
        int(tap): gathered(
            b, x, b.minimum(b.maximum(b.add(count, like(b, count, int(tap) - middle)), zero), last), axis
        )
        for tap in np.flatnonzero(rows.any(0))
    }
    phases = [
        functools.reduce(b.add, [b.mul(taps[int(tap)], like(b, x, row[tap])) for tap in np.flatnonzero(row)])
        for row in rows
    ]
    wanted = b.range(zero, b.mul(size, like(b, size, factor)), one, DYNAMIC)
    many = like(b, wanted, factor)
    in_turns = b.add(b.mul(b.floor_mod(wanted, many), size), b.floor_div(wanted, many))
    return gathered(b, b.concatenation(phases, axis), in_turns, axis)


def _floors(b: Builder, x: Tensor, axis: int, free: FreeAxis) -> Tensor:
    """``floor(out * size / wanted)`` in integers, where floats could end beside a whole number."""
    zero, one = (b.constant(np.array(number, np.int32)) for number in (0, 1))
    count = b.range(zero, b.reshape(free.wanted, ()), one, DYNAMIC)
    return b.floor_div(b.mul(count, b.size_of(x, axis)), free.wanted)


def _is_floor(method: Method, axes: Mapping[int, FreeAxis]) -> bool:
    if method.coordinates == "asymmetric" and method.nearest == "floor":
        return True
    # Each pixel is repeated: whole factors never end at a tie.
    whole = all(free.factor is not None for free in axes.values())
    halves = method.coordinates in ("half_pixel", "half_pixel_symmetric")
    return whole and halves and method.nearest in ("round_prefer_floor", "round_prefer_ceil")


def _linear(b: Builder, x: Tensor, axes: Mapping[int, FreeAxis], method: Method) -> Tensor:
    """RESIZE_BILINEAR, which knows the sizes that it is given."""
    grows = all(free.factor is not None for free in axes.values())
    if method.antialias and not grows:
        raise UnknownSize("antialias over an axis whose size is only known at run time")
    corners = method.coordinates == "align_corners"
    # PyTorch's own half_pixel differs for a result of one element only, and two is the least of a whole factor.
    half = method.coordinates == "half_pixel" or (method.coordinates == "pytorch_half_pixel" and grows)
    if x.rank != 4 or not set(axes) <= {1, 2} or not (corners or half or method.coordinates == "asymmetric"):
        raise UnknownSize(f"a resized axis whose size is only known at run time, with {method.coordinates}")
    if not (x.dtype == "float32" or x.is_quantized):
        raise Unsupported(f"{x.dtype} input: TFLite RESIZE_BILINEAR takes float32 and quantized integers")
    parts = [axes[place].wanted if place in axes else b.size_of(x, place) for place in (1, 2)]
    out = tuple(DYNAMIC if place in axes else x.shape[place] for place in (1, 2))
    size = b.sizes(parts)
    return b.resize_bilinear(x, size, (out[0], out[1]), align_corners=corners, half_pixel_centers=half)
