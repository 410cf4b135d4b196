"""Better integers for weights, layer by layer, and the bias that makes up for what remains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from convertkit.artifact import Array
from convertkit.profile import QuantProfile
from convertkit.quantization.graph.units import Unit
from convertkit.quantization.weights.blas import one_thread
from convertkit.quantization.weights.blocks import BlockedWeight
from convertkit.quantization.weights.integers import QuantizedWeight, along
from convertkit.quantization.weights.neighbours import bounded_rows, is_bounded
from convertkit.quantization.weights.patches import Moments, from_rows, weight_rows
from convertkit.quantization.weights.rounding import compensated, descended, layer_snr_db, output_error

_BUDGET = 1.5e10
"""Multiply-adds that tuning may cost in all: a few seconds, whatever the model."""
_LEAST_SHARE = 0.1
"""Weights that add less noise than this share of the activations' are good enough."""

Weight = QuantizedWeight | BlockedWeight


@dataclass(frozen=True, slots=True)
class Tuned:
    """The integers of one unit: how they were found, and the layer's SNR in dB before and after."""

    weight: Weight
    way: str
    nearest_db: float
    best_db: float


def tune(unit: Unit, nearest: Weight, moments: Moments, profile: QuantProfile) -> Tuned:
    """The best of rounding to nearest, error compensation and descent from there, by the layer's error on the data."""
    rows = weight_rows(unit).astype(np.float64)
    scales = weight_rows(unit, _full_scales(nearest)).astype(np.float64)
    plain = weight_rows(unit, nearest.integers).astype(np.float64)
    limits, ways = profile.weight_range, {"nearest": plain}
    ways["compensated"] = compensated(rows, scales, moments, limits)
    ways["descended"] = descended(rows, ways["compensated"], scales, moments, limits)
    if is_bounded(unit, profile, integer=True):
        ways = {way: bounded_rows(unit, integers, profile) for way, integers in ways.items()}
    levels = {way: layer_snr_db(rows, integers * scales, moments) for way, integers in ways.items()}
    best = max(levels, key=lambda way: levels[way])
    integers = from_rows(unit, ways[best]).astype(np.int8)
    return Tuned(_with_integers(nearest, integers), best, levels["nearest"], levels[best])


def worth_tuning(unit: Unit, nearest: Weight, moments: Moments, activation_noise: float) -> bool:
    """Whether the weights' rounding shows beside that of the activations, whose mean squared error is given."""
    rows = weight_rows(unit)
    by_weights = output_error(weight_rows(unit, nearest.real()) - rows, moments)
    return by_weights > _LEAST_SHARE * activation_noise * float(np.square(rows).sum())


def bias_shift(unit: Unit, weight: Weight, moments: Moments) -> Array:
    """What to add to the bias so that the layer's mean output stays: ``-(Wq - W) E[x]`` per output channel."""
    change = weight_rows(unit, weight.real()).astype(np.float64) - weight_rows(unit)
    return np.asarray(-np.einsum("gij,gj->gi", change, moments.mean).ravel().astype(np.float32))


def affordable(units: Sequence[Unit]) -> tuple[Unit, ...]:
    """Units that tuning can treat within its budget, the cheapest first; the order of the graph is kept."""
    chosen, spent = set(), 0.0
    for unit in sorted(units, key=lambda unit: (_work(unit), unit.name)):
        spent += _work(unit)
        if spent > _BUDGET:
            break
        chosen.add(unit)
    return tuple(unit for unit in units if unit in chosen)


def _work(unit: Unit) -> float:
    groups, rows, columns = weight_rows(unit).shape
    return float(groups * columns**2 * (columns + rows))


def tune_all(
    units: Sequence[Unit], nearest: Mapping[str, Weight], moments: Mapping[str, Moments], profile: QuantProfile
) -> dict[str, Tuned]:
    """:func:`tune` for every unit whose inputs were measured."""
    with one_thread():
        return {
            unit.name: tune(unit, nearest[unit.name], moments[unit.name], profile)
            for unit in units
            if unit.name in moments and unit.name in nearest
        }


def _full_scales(weight: Weight) -> Array:
    if isinstance(weight, BlockedWeight):
        return np.repeat(weight.scales, weight.block, weight.axis)
    return np.broadcast_to(along(weight.scales, weight.axis, weight.integers.ndim), weight.integers.shape)


def _with_integers(weight: Weight, integers: Array) -> Weight:
    if isinstance(weight, BlockedWeight):
        return BlockedWeight(integers, weight.scales, weight.axis, weight.block)
    return QuantizedWeight(integers, weight.scales, weight.axis)
