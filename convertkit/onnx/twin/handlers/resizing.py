"""Resize and Upsample, one axis after the other; coordinates are rounded as kernels round them, in float32.

Kernels that interpolate along several axes at once multiply their weights, so even equal neighbours are rounded.

Source: ONNX operators, Resize-19, and ONNX Runtime where the text leaves it open (lengths are those of the tensors).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.twin.call import Call, Handler, Results

_SINGLE = ir.DataType.FLOAT
_STATES_COORDINATES_SINCE = 11
Taps = list[tuple[Array, Array]]
"""Pairs of places and weights, an element of the result each."""


@dataclass(frozen=True, slots=True)
class _Axis:
    """``scale`` is the declared factor, ``before`` and ``after`` are lengths, ``start`` and ``end`` bound the crop."""

    number: int
    scale: Array
    before: int
    after: int
    start: float
    end: float


def _resize(call: Call) -> Results | None:
    if not call.tensor(0).is_real or call.whole("antialias"):
        return None  # ONNX's evaluator has the antialiased coefficients in double
    x = call.array(0)
    crops = _mode(call) == "tf_crop_and_resize"
    outside = np.zeros(())
    for axis in _axes(call, x.shape):
        if float(axis.scale) == 1.0 and not (crops and (axis.start, axis.end) != (0.0, 1.0)):
            continue
        places = _coordinates(call, axis)
        total = np.zeros((*x.shape[: axis.number], axis.after, *x.shape[axis.number + 1 :]))
        column = [-1 if number == axis.number else 1 for number in range(x.ndim)]
        taps = _INTERPOLATE[call.text("mode", "nearest")](call, axis, places)
        size = np.zeros_like(total)
        for index, weight in taps:
            part = np.take(x, index, axis.number) * weight.reshape(column)
            total += part
            size += np.abs(part)
        x = total if len(taps) == 1 else call.noise.within(total, call.dtype, size)
        if crops:
            outside = outside + ((places < 0) | (places > axis.before - 1)).reshape(column)
    filled = np.where(outside > 0, call.number("extrapolation_value", 0.0), x) if crops else x
    return [call.rounded(filled)]


def _mode(call: Call) -> str:
    default = "half_pixel" if call.opset >= _STATES_COORDINATES_SINCE else "asymmetric"
    return call.text("coordinate_transformation_mode", default)


def _axes(call: Call, shape: tuple[int, ...]) -> list[_Axis]:
    has_roi = call.node.op_type == "Resize" and call.opset >= _STATES_COORDINATES_SINCE
    numbers = [axis % len(shape) for axis in call.wholes("axes") or range(len(shape))]
    roi = call.optional(1) if has_roi else None
    roi = np.repeat([0.0, 1.0], len(numbers)) if roi is None or not roi.size else roi
    scales, sizes = call.optional(2 if has_roi else 1), call.optional(3) if has_roi else None
    if scales is None or not scales.size:
        scales = np.asarray(call.numbers("scales")) if sizes is None else None
    if sizes is not None and sizes.size:
        lengths = [shape[number] for number in numbers]
        factors, after = _from_sizes(call, np.asarray(lengths, float), sizes.astype(float))
    else:
        assert scales is not None, "sizes or scales are given"
        factors = scales
        after = [int(np.float32(shape[number]) * np.float32(scale)) for number, scale in zip(numbers, scales)]
    return [
        _Axis(number, np.asarray(factor), shape[number], length, float(start), float(end))
        for number, factor, length, start, end in zip(numbers, factors, after, roi, roi[len(numbers) :])
    ]


def _from_sizes(call: Call, before: Array, wanted: Array) -> tuple[Array, list[int]]:
    """Factors and lengths; a policy keeps the aspect ratio with one factor for all axes."""
    policy = call.text("keep_aspect_ratio_policy", "stretch")
    factors = wanted / before
    if policy != "stretch":
        one = factors.min() if policy == "not_larger" else factors.max()
        factors = np.full_like(factors, one)
        wanted = np.floor(one * before + 0.5)
    factors = _single(factors) if _takes_nearest(call) else call.step(factors, dtype=_SINGLE)
    return factors, [int(size) for size in wanted]


def _takes_nearest(call: Call) -> bool:
    """Whether places are only to be rounded: they are those of float32, whatever the input, in all kernels."""
    return call.text("mode", "nearest") == "nearest"


def _single(x: Array) -> Array:
    return np.asarray(x, np.float32).astype(float)


def _coordinates(call: Call, axis: _Axis) -> Array:
    """Where each element of the result lies in the operand."""
    i, mode, before, after = np.arange(axis.after, dtype=float), _mode(call), axis.before, axis.after

    def step(x: Array) -> Array:
        return _single(x) if _takes_nearest(call) else call.step(x, dtype=_SINGLE)

    if mode == "align_corners":
        return step(step(i * (before - 1)) / (after - 1)) if after > 1 else np.zeros(after)
    if mode == "asymmetric":
        return step(i / axis.scale)
    if mode == "tf_crop_and_resize":
        first, last = step(np.asarray(axis.start * (before - 1))), step(np.asarray(axis.end * (before - 1)))
        if after == 1:
            return step(0.5 * (first + last)).reshape(1)
        return step(first + step(i * step((last - first) / (after - 1))))
    if mode == "pytorch_half_pixel" and after == 1:
        return np.zeros(1)
    centre = step(step((i + 0.5) / axis.scale) - 0.5)
    if mode == "half_pixel_symmetric":
        ratio = step(after / step(axis.scale * before))
        return step(step(before / 2.0 * step(1.0 - ratio)) + centre)
    return centre


def _nearest(call: Call, axis: _Axis, places: Array) -> Taps:
    if call.opset < _STATES_COORDINATES_SINCE:
        rounding = "ceil" if float(axis.scale) < 1.0 else "floor"
    else:
        rounding = call.text("nearest_mode", "round_prefer_floor")
    index = _ROUNDINGS[rounding](places)
    return [(np.clip(index, 0, axis.before - 1).astype(np.int64), np.ones(axis.after))]


_ROUNDINGS: Mapping[str, Callable[[Array], Array]] = {
    "ceil": np.ceil,
    "floor": np.floor,
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
}


def _linear(call: Call, axis: _Axis, places: Array) -> Taps:
    low = np.floor(places)
    share = call.step(places - low, dtype=_SINGLE)
    return _inside(call, axis, low, [1.0 - share, share])


def _cubic(call: Call, axis: _Axis, places: Array) -> Taps:
    low = np.floor(places)
    share, slope = call.step(places - low, dtype=_SINGLE), call.number("cubic_coeff_a", -0.75)
    weights = [_curve(np.abs(share - offset), slope) for offset in (-1.0, 0.0, 1.0, 2.0)]
    return _inside(call, axis, low - 1.0, weights)


def _curve(distance: Array, slope: float) -> Array:
    """The cubic convolution kernel.  Source: R. G. Keys, 1981, as ONNX's Resize names it."""
    near = ((slope + 2.0) * distance - (slope + 3.0)) * distance**2 + 1.0
    far = ((slope * distance - 5.0 * slope) * distance + 8.0 * slope) * distance - 4.0 * slope
    return np.where(distance <= 1.0, near, np.where(distance < 2.0, far, 0.0))


def _inside(call: Call, axis: _Axis, low: Array, weights: list[Array]) -> Taps:
    """Taps from ``low`` on; beyond the border its element counts, or nothing (``exclude_outside``)."""
    index = [low + offset for offset in range(len(weights))]
    if call.whole("exclude_outside"):
        weights = [np.where((at >= 0) & (at < axis.before), weight, 0.0) for at, weight in zip(index, weights)]
        total = np.sum(weights, axis=0)
        weights = [weight / total for weight in weights]
    places = [np.clip(at, 0, axis.before - 1).astype(np.int64) for at in index]
    return [(at, call.step(weight, dtype=_SINGLE)) for at, weight in zip(places, weights)]


_INTERPOLATE: Mapping[str, Callable[[Call, _Axis, Array], Taps]] = {
    "bilinear": _linear,
    "cubic": _cubic,
    "linear": _linear,
    "nearest": _nearest,
}
HANDLERS: Mapping[str, Handler] = {"Resize": _resize, "Upsample": _resize}
