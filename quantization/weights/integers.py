"""Weights and biases as integers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from convertkit.artifact import Array
from convertkit.quantization.weights.scales import SHRINKS, best_shrinks, in_threads

_BIAS_STEPS = 2.0**30
"""Largest bias in steps: half of int32, so that the accumulator has room for the products."""
_LEAST_SHARE = 2.0**-20
"""A channel's scale is at least this share of the largest channel's: dead channels get no subnormal scale."""


@dataclass(frozen=True, slots=True)
class QuantizedWeight:
    """Integers in the weight's shape, and one scale per slice along ``axis`` (a single one where None)."""

    integers: Array
    scales: Array
    axis: int | None

    def real(self) -> Array:
        """What the integers stand for, float32."""
        return (self.integers.astype(np.float32) * along(self.scales, self.axis, self.integers.ndim)).astype(np.float32)


def along(per_channel: Array, axis: int | None, rank: int) -> Array:
    """A vector shaped so that it multiplies slices along ``axis``."""
    if axis is None:
        return per_channel.reshape((1,) * rank)
    return per_channel.reshape(tuple(-1 if place == axis else 1 for place in range(rank)))


def greatest(weight: Array, axis: int | None) -> Array:
    """The largest magnitude of each slice along ``axis``, or of all."""
    places = tuple(place for place in range(weight.ndim) if place != axis)
    return np.asarray(np.maximum(weight.max(axis=places), -weight.min(axis=places))).reshape(-1)


def weight_scales(weight: Array, axis: int | None, steps: int, least: Array | None = None) -> Array:
    """Scales that let the largest weight of each slice be ``steps``; at least ``least``."""
    scales = greatest(weight, axis).astype(np.float64) / steps
    floor = max(float(scales.max(initial=0.0)) * _LEAST_SHARE, 1e-30)
    scales = np.maximum(scales, floor)
    return np.maximum(scales, least if least is not None else 0.0).astype(np.float32)


def best_scales(weight: Array, axis: int | None, limits: tuple[int, int]) -> Array:
    """Scales with the least squared error of rounding to nearest: at few bits it pays to clip."""
    full = weight_scales(weight, axis, limits[1])
    tried = np.multiply.outer(SHRINKS, full).astype(np.float32)
    slices = weight.reshape(1, -1) if axis is None else np.moveaxis(weight, axis, 0)
    best = np.empty_like(full)

    def choose(part: slice) -> None:
        scales = tried[:, part]
        rows = slices[part].reshape(scales.shape[1], -1)
        found = best_shrinks(rows, scales.astype(np.float64), limits)
        best[part] = np.take_along_axis(scales, found[None], 0)[0]

    in_threads(choose, len(slices), weight.size // max(len(slices), 1))
    return best


def quantize_weight(
    weight: Array, axis: int | None, limits: tuple[int, int], scales: Array | None = None
) -> QuantizedWeight:
    """Weight rounded to the nearest integers in ``limits``."""
    chosen = weight_scales(weight, axis, limits[1]) if scales is None else scales
    shaped = along(chosen.astype(np.float64), axis, weight.ndim)
    integers = np.empty(weight.shape, np.int8)

    def round_off(part: slice) -> None:
        steps = np.rint(weight[part].astype(np.float64) / (shaped[part] if axis == 0 else shaped))
        integers[part] = np.clip(steps, *limits, out=steps)

    in_threads(round_off, len(weight), weight.size // max(len(weight), 1))
    return QuantizedWeight(integers, chosen, axis)


def least_weight_scales(bias: Array, input_scale: float) -> Array:
    """Weight scales below which the bias would not fit into int32; source: TFLite quantization specification."""
    return (np.abs(bias.astype(np.float64)) / (_BIAS_STEPS * input_scale)).astype(np.float32)


def quantize_bias(bias: Array, input_scale: float, weight_scales: Array, dtype: str) -> tuple[Array, Array]:
    """Integers and scales (``input × weight``, float32) of a bias with one value per output channel."""
    scales = np.float32(input_scale) * np.resize(weight_scales, bias.shape)
    kind = np.iinfo(dtype)
    steps = np.rint(bias.astype(np.float64) / scales.astype(np.float64))
    return np.clip(steps, kind.min, kind.max).astype(dtype), scales
