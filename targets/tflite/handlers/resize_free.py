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
from convertkit.targets.tflite.handlers.sampling import Border, as_real, cubic_taps, linear_taps
from convertkit.targets.tflite.tensor import DYNAMIC, Tensor


@dataclass(frozen=True, slots=True)
class FreeAxis:
    """The size of one resized axis as an int32 vector of one element, and its factor where that is a constant.

    ``factor`` is a whole one, ``scale`` any other, rounded to float32.
    """

    wanted: Tensor
    factor: int | None = None
    scale: float | None = None


def free_axes(
    b: Builder, x: Tensor, axes: tuple[int, ...], scales: Tensor | None, sizes: Tensor | None
) -> dict[int, FreeAxis]:
    """By axis of ``x``, which sizes are wanted; an axis that is not named keeps its own."""
    if sizes is not None:
        wanted = b.cast(sizes, "int32")
        return {axis: FreeAxis(b.slice(wanted, (place,), (1,))) for place, axis in enumerate(axes)}
    if scales is None or scales.constant is None:
        raise Unsupported("the scales are computed at run time; TFLite needs them as constants")
    found = {}
    for axis, scale in zip(axes, np.asarray(scales.constant).tolist(), strict=True):
        size = b.size_of(x, axis)
        if scale != int(scale):
            real = b.cast(size, "float32")
            found[axis] = FreeAxis(b.cast(b.floor(b.mul(real, like(b, real, scale))), "int32"), scale=scale)
        elif scale != 1:
            found[axis] = FreeAxis(b.mul(size, b.ints([int(scale)])), int(scale))
    return found


def resized_at_run_time(b: Builder, x: Tensor, axes: Mapping[int, FreeAxis], method: Method) -> Tensor:
    """``x`` with each of ``axes`` resized; a refusal where only known sizes could tell the weights."""
    if method.mode == "linear" and _is_builtin(x, axes, method):
        return _linear(b, x, axes, method)
    if method.mode == "cubic" and _is_phased(axes, method):
        float_only(x, "Resize with mode cubic")
        for axis, free in axes.items():
            x = _cubic_along(b, x, axis, int(free.factor or 1), method)
        return x
    if method.mode != "nearest":
        return _at_places(b, x, axes, method)
    if not _is_floor(method, axes):
        raise UnknownSize(
            "a resized axis whose size is only known at run time, with mode nearest, "
            f"{method.coordinates} and {method.nearest}: exact is asymmetric with floor"
        )
    for axis, free in axes.items():
        x = gathered(b, x, _floors(b, x, axis, free), axis)
    return x


def _at_places(b: Builder, x: Tensor, axes: Mapping[int, FreeAxis], method: Method) -> Tensor:
    """Each element's place on the input, computed as ONNX Runtime does, and its neighbours there."""
    refused = [name for name in ("antialias", "exclude_outside") if getattr(method, name)]
    if refused or method.coordinates not in _PLACED:
        raise UnknownSize(
            "a resized axis whose size is only known at run time, with " + " and ".join([method.coordinates, *refused])
        )
    float_only(x, f"Resize with mode {method.mode}")
    for axis, free in axes.items():
        border = Border(as_real(b, b.size_of(x, axis)), "border", True)
        where = _places(b, x, axis, free, method.coordinates)
        cubic = method.mode == "cubic"
        taps = cubic_taps(b, where, border, method.cubic_a) if cubic else linear_taps(b, where, border)
        view = tuple(DYNAMIC if place == axis else 1 for place in range(x.rank))
        x = functools.reduce(
            b.add,
            [
                b.mul(gathered(b, x, b.cast(tap.place, "int32"), axis), b.reshape(tap.weight, view))
                for tap in taps
                if tap.weight is not None
            ],
        )
    return x


_PLACED = frozenset({"half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"})
"""Coordinates that need no more than both sizes, or the scale."""


def _places(b: Builder, x: Tensor, axis: int, free: FreeAxis, coordinates: str) -> Tensor:
    """Where each of the wanted elements lies on the input's axis, in elements, float32.

    Source: ONNX operators, Resize-19, in the order of operations of ONNX Runtime's ``upsamplebase.h``.
    """
    zero, one = (b.constant(np.array(number, np.int32)) for number in (0, 1))
    count = b.cast(b.range(zero, b.reshape(free.wanted, ()), one, DYNAMIC), "float32")
    before, after = b.cast(b.size_of(x, axis), "float32"), b.cast(free.wanted, "float32")
    unit, half = like(b, count, 1), like(b, count, 0.5)
    if coordinates == "align_corners":
        gaps = b.maximum(b.sub(after, unit), unit)  # of one element the place is 0, whatever it is divided by
        return b.div(b.mul(count, b.sub(before, unit)), gaps)
    constant = free.scale if free.scale is not None else free.factor
    scale = b.div(after, before) if constant is None else like(b, count, constant)
    if coordinates == "asymmetric":
        return b.div(count, scale)
    shifted = b.div(b.add(count, half), scale)
    halves = b.sub(shifted, half)
    if coordinates == "half_pixel":
        return halves
    return b.mul(halves, b.cast(b.greater(after, unit), "float32"))  # of one element the place is 0


_PHASED = frozenset({"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "asymmetric"})
"""Coordinates that repeat with each element of the input, where the factor is a whole number of 2 or more."""
_PROBE = 9
"""A size that has an element far from both ends: its weights are those of all elements."""


def _is_phased(axes: Mapping[int, FreeAxis], method: Method) -> bool:
    """Whether each phase of a whole factor is one weighted sum of neighbours, whatever the size."""
    whole = all(free.factor is not None for free in axes.values())
    return whole and method.coordinates in _PHASED and not method.exclude_outside


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
    """``floor(out * size / wanted)`` in integers, where floats could end beside a whole number.

    Where a scale is given it is ``floor(out / scale)``, in float32 as ONNX Runtime computes it.
    """
    if free.scale is not None:
        where = b.floor(_places(b, x, axis, free, "asymmetric"))
        size = b.cast(b.size_of(x, axis), "float32")
        return b.cast(b.minimum(where, b.sub(size, like(b, size, 1))), "int32")
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


def _is_builtin(x: Tensor, axes: Mapping[int, FreeAxis], method: Method) -> bool:
    """Whether RESIZE_BILINEAR computes it, which knows the sizes that it is given."""
    grows = all(free.factor is not None for free in axes.values())
    # PyTorch's own half_pixel differs for a result of one element only, and two is the least of a whole factor.
    half = method.coordinates == "half_pixel" or (method.coordinates == "pytorch_half_pixel" and grows)
    known = half or method.coordinates in ("align_corners", "asymmetric")
    by_sizes = all(free.scale is None for free in axes.values())
    return known and by_sizes and x.rank == 4 and set(axes) <= {1, 2} and (grows or not method.antialias)


def _linear(b: Builder, x: Tensor, axes: Mapping[int, FreeAxis], method: Method) -> Tensor:
    if not (x.dtype == "float32" or x.is_quantized):
        raise Unsupported(f"{x.dtype} input: TFLite RESIZE_BILINEAR takes float32 and quantized integers")
    corners, half = method.coordinates == "align_corners", method.coordinates in ("half_pixel", "pytorch_half_pixel")
    parts = [axes[place].wanted if place in axes else b.size_of(x, place) for place in (1, 2)]
    out = tuple(DYNAMIC if place in axes else x.shape[place] for place in (1, 2))
    size = b.sizes(parts)
    return b.resize_bilinear(x, size, (out[0], out[1]), align_corners=corners, half_pixel_centers=half)
