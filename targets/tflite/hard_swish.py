"""HARD_SWISH between integers as TFLite's kernels compute it, in 16 bits of fixed point.

Source: LiteRT, tflite/kernels/internal/reference/hard_swish.h; for Arm optimized_ops.h, which rounds halves up where
the other rounds them away from zero; tflite/kernels/activations.cc for the multipliers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from convertkit.artifact import Array

_BITS = 15
_ONE = 1 << _BITS
_LARGEST = _ONE - 1
_TO_SIXTEEN_BITS = 7
"""By so many bits nine bits of a difference from a zero point are shifted up."""
_TIE = 1e-4
"""Of a step: a result that is nearer to a tie is not counted on."""


def other_results(given: Array, given_zero: int, scales: Array, zero: int) -> Array:
    """How many of the 256 results are other integers than HardSwish rounded once, for each pair of scales.

    Counted are those of either kernel, and those that are all but a tie.
    """
    distance = (np.arange(-128, 128) - given_zero).astype(np.int64)
    given, scales = given.astype(np.float32)[:, None], scales.astype(np.float32)[:, None]
    reals = distance * given.astype(np.float64)
    steps = reals * np.clip(reals / 6 + 0.5, 0, 1) / scales.astype(np.float64)
    wanted = np.clip(np.rint(steps) + zero, -128, 127)
    other = np.abs(np.abs(steps - np.floor(steps)) - 0.5) < _TIE
    for rounding in (_PORTABLE, _ARM):
        other |= _computed(distance, given, scales, zero, rounding) != wanted
    return np.asarray(other.sum(axis=1))


@dataclass(frozen=True, slots=True)
class _Rounding:
    """How a kernel takes the high half of a product, drops it without rounding, and divides by a power of two."""

    high: Callable[[Array, Array], Array]
    high_down: Callable[[Array, Array], Array]
    divide: Callable[[Array, Array], Array]


def _away_from_zero(value: Array, bits: Array) -> Array:
    size = (np.abs(value) + (1 << bits >> 1)) >> bits
    return np.asarray(np.where(value < 0, -size, size))


def _up(value: Array, bits: Array) -> Array:
    return np.asarray((value + (1 << bits >> 1)) >> bits)


def _to_zero(one: Array, other: Array) -> Array:
    product = one * other
    return np.where(product < 0, -(-product >> _BITS), product >> _BITS)


def _high_up(one: Array, other: Array) -> Array:
    return np.asarray((one * other + (_ONE >> 1)) >> _BITS)


def _high_away(one: Array, other: Array) -> Array:
    """Halves below zero go up, as the offset there is one less."""
    product = one * other
    return np.where(product < 0, -((-product + (_ONE >> 1) - 1) >> _BITS), (product + (_ONE >> 1)) >> _BITS)


_PORTABLE = _Rounding(_high_away, _to_zero, _away_from_zero)
_ARM = _Rounding(_high_up, lambda one, other: (one * other) >> _BITS, _up)


def _computed(distance: Array, given: Array, scales: Array, zero: int, rounding: _Rounding) -> Array:
    """The kernel's integers, a row for each pair of scales."""
    fine = distance << _TO_SIXTEEN_BITS
    step = given / np.float32(1 << _TO_SIXTEEN_BITS)
    multiplier, exponent = _multiplier(step / scales)
    written = rounding.high(fine, multiplier)
    factor, power = _multiplier(step / (np.float32(3) / np.float32(_ONE)))
    wide = _saturated(rounding.high(_saturated(fine << np.maximum(power - 1, 0)), factor) << 1)
    gate = np.where(power > 0, wide, rounding.divide(rounding.high(fine, factor), np.maximum(-power, 0)))
    gate = (gate + _ONE) >> 1
    result = rounding.divide(rounding.high_down(gate, written), np.maximum(-exponent, 0))
    computed = np.clip(result + zero, -128, 127)
    return np.where(exponent > 0, zero - 256, computed)  # which the kernel refuses


def _saturated(value: Array) -> Array:
    return np.clip(value, -_ONE, _LARGEST)


def _multiplier(factor: Array) -> tuple[Array, Array]:
    """``factor`` as a number of 15 bits in [0.5, 1) and a power of two, which the kernel rounds by way of 31 bits."""
    part, exponent = np.frexp(factor.astype(np.float64))
    whole = np.floor(part * (1 << 31) + 0.5).astype(np.int64)
    full = whole == 1 << 31
    whole, exponent = np.where(full, whole >> 1, whole), exponent + full
    return np.minimum((whole + (1 << 15)) >> 16, _LARGEST), exponent.astype(np.int64)
