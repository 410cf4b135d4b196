"""Integers for weights alone: activations, and what is computed, stay float.

A quarter or an eighth of the file.  No calibration data is needed; where there is some,
weights are corrected by it (``tune``).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.edit import drop_unused
from convertkit.profile import QuantProfile
from convertkit.quantization.graph.units import Unit, constant, is_float
from convertkit.quantization.weights.blocks import BlockedWeight, block_axis, quantize_blocks
from convertkit.quantization.weights.integers import QuantizedWeight, best_scales, quantize_weight
from convertkit.quantization.weights.left_float import store_what_is_float
from convertkit.quantization.weights.neighbours import is_bounded, least_scales
from convertkit.quantization.weights.recurrent import quantize_recurrent
from convertkit.quantization.weights.tables import quantize_tables
from convertkit.quantization.weights.write import WeightWriter

LEAST_WEIGHTS = 64
"""A smaller weight costs more in scales than it saves."""
LEAST_ALONE = 2048
"""With float activations, int8 for a smaller weight costs more SNR than its bytes are worth; int4 users count bytes.

Not where such weights are most of what is asked to become smaller.
"""

_WIDE = (-127, 127)

Corrected = Mapping[str, QuantizedWeight | BlockedWeight]
"""Integers that a calibrated pass chose, by the unit's name."""


def quantize_weights(
    model: ir.Model, units: tuple[Unit, ...], profile: QuantProfile, corrected: Corrected | None = None
) -> tuple[str, ...]:
    """Quantize units' weights, embedding tables and recurrent weights, in place; returns the names of the nodes."""
    done = list(store_weights(model.graph, units, profile, corrected))
    done += quantize_tables(model.graph) if profile.integer_rows else ()
    done += quantize_recurrent(model) if profile.recurrent else ()
    if profile.left_as_halves and done:
        store_what_is_float(model)
    drop_unused(model.graph)
    return tuple(done)


def store_weights(
    graph: ir.Graph, units: Iterable[Unit], profile: QuantProfile, corrected: Corrected | None = None
) -> tuple[str, ...]:
    """Put the units' weights behind DequantizeLinear, in place; returns the names of the units."""
    writer = WeightWriter(graph, profile)
    done = []
    chosen_from = [unit for unit in units if is_candidate(unit)]
    least = _least(graph, chosen_from, profile)
    for unit in chosen_from:
        if constant(unit.weight_or_fail[1]).size < least:
            continue
        index, source = unit.weight_or_fail
        chosen = (corrected or {}).get(unit.name) or nearest(unit, profile)
        unit.node.replace_input_with(index, writer.weight(source, chosen, unit.node))
        done.append(unit.name)
    return tuple(done)


def _least(graph: ir.Graph, units: Iterable[Unit], profile: QuantProfile) -> int:
    """How many numbers the smallest weight has that becomes integer."""
    if profile.weight != "int8":
        return LEAST_WEIGHTS
    if not profile.weight_only:
        return LEAST_ALONE
    small = {weight for unit in units if constant(weight := unit.weight_or_fail[1]).size < LEAST_ALONE}
    every = sum(
        math.prod(value.shape.numpy()) for value in graph.initializers.values() if is_float(value) and value.shape
    )
    return LEAST_WEIGHTS if 2 * sum(constant(weight).size for weight in small) > every else LEAST_ALONE


def is_candidate(unit: Unit) -> bool:
    """Whether the unit has a weight that is worth it."""
    return unit.weight is not None and constant(unit.weight[1]).size >= LEAST_WEIGHTS


def widened(units: Iterable[Unit], profile: QuantProfile, chosen: Collection[str] = ()) -> frozenset[str]:
    """``chosen``, and the smallest of the units that are not, as far as ``profile.share`` goes: those get 8 bits.

    Each layer adds about as much noise as any other, so what is spent on bytes goes to as many layers as possible.
    """
    found = set(chosen)
    if profile.weight != "int4" or not profile.share:
        return frozenset(found)
    sizes = {unit.name: constant(unit.weight_or_fail[1]).size for unit in units if is_candidate(unit)}
    scales = sum(_scale_bytes(unit) for unit in units if is_candidate(unit))
    total = sum(sizes.values())
    spare = total * 4 * profile.share - total / 2 - scales - sum(sizes[name] for name in found) / 2
    for name, size in sorted(sizes.items(), key=lambda item: (item[1], item[0])):
        if name in found:
            continue
        spare -= size / 2
        if spare < 0:
            break
        found.add(name)
    return frozenset(found)


def _scale_bytes(unit: Unit) -> int:
    array = constant(unit.weight_or_fail[1])
    axis = channel_axis(unit, array)
    return 4 * (1 if axis is None else int(array.shape[axis]))


def nearest_wide(unit: Unit) -> QuantizedWeight:
    """The unit's weight as int8."""
    array = constant(unit.weight_or_fail[1])
    axis = channel_axis(unit, array)
    return quantize_weight(array, axis, _WIDE, best_scales(array, axis, _WIDE))


def nearest(unit: Unit, profile: QuantProfile) -> QuantizedWeight | BlockedWeight:
    """The unit's weight rounded to nearest, at the scales with the least squared error."""
    array = constant(unit.weight_or_fail[1])
    axis = block_axis(unit, profile, array)
    if axis is not None and profile.block is not None:
        return quantize_blocks(array, axis, profile.block, profile.weight_range)
    channel = channel_axis(unit, array)
    scales = best_scales(array, channel, profile.weight_range)
    if is_bounded(unit, profile, integer=False):
        scales = np.maximum(scales, least_scales(unit, profile))
    return quantize_weight(array, channel, profile.weight_range, scales)


def channel_axis(unit: Unit, array: Array) -> int | None:
    """The axis along which the unit's weight has a scale per slice."""
    assert unit.rule is not None
    return None if unit.rule.per_tensor else unit.rule.weight_axis[unit.weight_or_fail[0]] % array.ndim
