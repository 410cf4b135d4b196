"""What stored weights cost where activations are float, by the target's tables, and which get 8 bits for that reason.

Weights of 8 bits are never slower than float32: a target multiplies by them where that is faster, and makes them real
once, when it loads the model, where it is not.  Weights of 4 bits that no kernel takes are made real at each call.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from convertkit.kernel_costs import TransposedShape
from convertkit.profile import RECURRENT, NarrowCost, NarrowCosts, QuantProfile
from convertkit.quantization.graph.sizes import elements
from convertkit.quantization.graph.units import Unit, constant
from convertkit.quantization.graph.work import multiply_adds
from convertkit.quantization.place.costs import conv_shape, unit_cost, unit_work
from convertkit.quantization.place.precision_assignment import total_cost
from convertkit.quantization.weights.weight_only import is_candidate

_DEAR = 2.0
"""A percent of float32's time counts as so many of the file: as long as the model is slower than in float32."""

_UNNOTICED = 1.01
"""A model may be slower than in float32 by this factor: a table is right to some percent."""
_NO_FASTER = 0.97
"""Of float32's time, from which on stored weights only save bytes."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Nanoseconds of a model in float32, and of each unit with weights in 32, 8 and 4 bits."""

    float_ns: float
    units: dict[str, tuple[float, float, float]]

    def share(self, wide: Collection[str], real: Collection[str]) -> float:
        """The model's time over float32's, where ``wide`` units have 8 bits, ``real`` ones 32 and all others 4."""
        added = 0.0
        for name, (full, eight, four) in self.units.items():
            added += 0.0 if name in real else (eight if name in wide else four) - full
        return (self.float_ns + added) / self.float_ns if self.float_ns else 1.0


def pace(units: tuple[Unit, ...], profile: QuantProfile) -> Pace:
    """By the profile's tables; 4 bits cost what 8 do where the profile does not tell."""
    plain = replace(profile, dynamic=frozenset())
    product = profile.costs["Gemm"].float32 if profile.kernel_costs is None else 0.0  # else ``unit_cost`` knows them
    recurrent = sum(multiply_adds(unit.node) for unit in units if unit.node.op_type in RECURRENT)
    found = {}
    for unit in filter(is_candidate, units):
        full, eight = unit_cost(unit, plain)[1], _eight_bits_ns(unit, profile)
        found[unit.name] = (full, eight, eight if profile.narrow is None else _four_bits_ns(unit, profile.narrow))
    return Pace(total_cost(units, plain, frozenset()) + product * recurrent, found)


def widened_for_time(units: Iterable[Unit], paced: Pace, file_bytes: float) -> frozenset[str]:
    """Names of units that get 8 bits because 4 cost time, those first that win most per byte.

    As many as it takes for the model to be about as fast as in float32; but not those whose bytes are a greater share
    of the file (``file_bytes``, with 8 bits throughout) than twice their time is of float32's: 4 bits are for size.
    """
    chosen: set[str] = set()
    saved = {unit.name: constant(unit.weight_or_fail[1]).size / 2 for unit in units if is_candidate(unit)}
    lost = {name: paced.units[name][2] - paced.units[name][1] for name in saved}
    for name in sorted(saved, key=lambda name: (-lost[name] / saved[name], name)):
        dear = _DEAR * lost[name] / max(paced.float_ns, 1e-9) > saved[name] / max(file_bytes, 1.0)
        if not dear or paced.share(chosen, ()) <= _UNNOTICED:
            break
        chosen.add(name)
    return frozenset(chosen)


def is_for_size_only(units: Iterable[Unit], profile: QuantProfile, time_share: float | None) -> bool:
    """Whether stored weights make nothing faster: by the tables, or because no product takes them as they are.

    False where nobody knows: of recurrent weights, and of targets that do not say which products take integers.
    """
    every = tuple(units)
    if not profile.dynamic or (profile.recurrent and any(unit.node.op_type in RECURRENT for unit in every)):
        return False
    if time_share is not None:
        return time_share >= _NO_FASTER
    return not any(unit.kinds[-1] in profile.dynamic for unit in every if is_candidate(unit))


def _eight_bits_ns(unit: Unit, profile: QuantProfile) -> float:
    """The lesser of float32's time and that of a product that quantizes what it reads, where there is such a kernel."""
    full = unit_cost(unit, replace(profile, dynamic=frozenset()))[1]
    shape = conv_shape(unit.node)
    if shape is None:
        return unit_cost(unit, profile)[1]
    free = isinstance(shape, TransposedShape) and not _is_static(unit)
    dilated = set(unit.node.attributes.get_ints("dilations", (1,))) != {1}
    if profile.kernel_costs is None or free or dilated or _taps(unit) == 1:
        return full
    return full - profile.kernel_costs.gain_between_floats(shape, _read(unit))


def _four_bits_ns(unit: Unit, costs: NarrowCosts) -> float:
    work, weight = unit_work(unit), constant(unit.weight_or_fail[1])
    cost, unrolled, rows = costs.made_real, 0.0, 0.0
    if unit.node.op_type in ("Gemm", "MatMul") or _is_dense(unit):
        wide = weight.shape[-1] if unit.node.op_type == "MatMul" else weight.shape[0]
        cost = costs.pointwise if unit.node.op_type == "Conv" else costs.dense
        rows = sum(map(elements, unit.outputs)) / int(wide)
    elif conv_shape(unit.node) is None:
        cost = costs.made_real_depthwise if weight.shape[1] == 1 else costs.made_real
    else:
        unrolled = work / (weight.shape[0] if unit.node.op_type == "Conv" else weight.shape[1])
        if unit.node.op_type == "Conv" and weight.shape[1] >= costs.least_channels:
            cost = costs.convolution
    return _nanoseconds(cost, work, _read(unit) + sum(map(elements, unit.outputs)), unrolled, rows, weight.size)


def _nanoseconds(cost: NarrowCost, work: float, touched: float, unrolled: float, rows: float, weights: float) -> float:
    moved = cost.element * touched + cost.unrolled * unrolled + cost.row * rows
    return cost.call + cost.product * work + moved + cost.weight * weights


def _is_dense(unit: Unit) -> bool:
    """Whether a convolution is a product of each pixel."""
    attributes = unit.node.attributes
    moves = (*attributes.get_ints("strides", ()), *attributes.get_ints("dilations", ()))
    still = set(moves) <= {1} and not any(attributes.get_ints("pads", ())) and attributes.get_int("group", 1) == 1
    return unit.node.op_type == "Conv" and _taps(unit) == 1 and still


def _taps(unit: Unit) -> int:
    return math.prod(constant(unit.weight_or_fail[1]).shape[2:])


def _is_static(unit: Unit) -> bool:
    shape = unit.node.outputs[0].shape
    return shape is not None and shape.is_static()


def _read(unit: Unit) -> int:
    return sum(map(elements, unit.data.values()))
