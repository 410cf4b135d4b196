"""Which units compute in integers: where integers pay, by the target's cost table.

Every unit is integer or float; a boundary between the two costs a conversion of the tensor.  The
cheapest labelling is a minimum cut, which is found exactly.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from convertkit.kernel_costs import SMALL_MATRIX
from convertkit.mincut import MinCut
from convertkit.profile import QuantProfile
from convertkit.quantization.graph.sizes import elements
from convertkit.quantization.graph.units import Unit
from convertkit.quantization.place.costs import conversion, real_product, unit_cost
from convertkit.quantization.place.exact_float import can_be_exact
from convertkit.quantization.place.float_outputs import without_float_moves

_NEVER = 1e18
_UNNOTICED = 1.005
"""A float end may make the model dearer by this factor: the table is right to some percent, no clock would tell."""
_LONGEST_END = 12
"""Units at the end that are looked at; a convolution among them costs more than it may."""
_STEPS_PER_NS = 1 << 20
"""Costs are cut in steps of about a femtosecond: of whole numbers a sum is exact."""
_TIE_NS = 1e-3
"""Where both cost the same, integer wins: it is a quarter of the memory."""


def choose_integer(
    units: tuple[Unit, ...],
    profile: QuantProfile,
    *,
    insist: bool,
    keep_float: frozenset[str] = frozenset(),
    reluctance: float = 0.0,
) -> frozenset[Unit]:
    """The units that compute in integers: of what gains enough on each machine, the cheapest for all together.

    ``insist`` takes every unit that has a rule.  ``keep_float`` names units that stay float
    whatever they cost.  ``reluctance`` is a share by which integers count as dearer than they are, where float is
    nearly as fast: in elementwise operators.
    """
    able = [unit for unit in units if unit.rule is not None and unit.name not in keep_float]
    if insist or not profile.costs:
        chosen = frozenset(able if insist else _worthwhile(able))
        return without_float_moves(units, chosen, profile) if profile.writes_float and not insist else chosen
    chosen = _cheapest(units, profile, set(able), reluctance)
    if _gains_enough(units, profile, chosen):
        return chosen
    # What is best for the sum of several machines may lose on one, where fewer integers gain on each.
    others = (_cheapest(units, one, set(able), reluctance) for one in _machines(profile))
    gaining = [each for each in dict.fromkeys(others) if each and _gains_enough(units, profile, each)]
    return min(gaining, key=lambda each: total_cost(units, profile, each), default=frozenset())


def _machines(profile: QuantProfile) -> tuple[QuantProfile, ...]:
    """Each of several machines; none where there is one alone."""
    alone = profile.alone()
    return alone if len(alone) > 1 else ()


def _cheapest(units: tuple[Unit, ...], profile: QuantProfile, allowed: set[Unit], reluctance: float) -> frozenset[Unit]:
    """The minimum cut."""
    cut = MinCut()
    place = _lookups(units, profile)
    for unit in units:
        integer, real = unit_cost(unit, profile)
        integer *= 1 + (reluctance if _is_elementwise(unit) else 0.0)
        at = place.get(unit, unit)
        cut.arc(_INTEGER, at, _steps(real))
        cut.arc(at, _FLOAT, _steps(integer - _TIE_NS if unit in allowed or unit in place else _NEVER))
    for one, other, cost in _boundaries(units, profile):
        for end, neighbour in ((one, other), (other, one)):
            if _always_converts(end, neighbour, profile):
                cut.arc(_INTEGER, place.get(end, end), _steps(cost))
            if not _always_converts(neighbour, end, profile):
                # A table is read between integers only: a neighbour in float leaves the computation in float, too.
                dear = _steps(_NEVER if end in place else cost)
                cut.arc(place.get(end, end), place.get(neighbour, neighbour), dear)
    return frozenset(unit for unit in cut.near(_INTEGER, _FLOAT) if isinstance(unit, Unit)) & allowed


def _steps(cost_ns: float) -> int:
    return max(round(cost_ns * _STEPS_PER_NS), 0)


def _gains_enough(units: tuple[Unit, ...], profile: QuantProfile, chosen: frozenset[Unit]) -> bool:
    """Whether integers save ``profile.least_gain`` of the time, on each machine that the table knows.

    A table knows times to some percent only, and float is more exact.
    """
    if not profile.least_gain:
        return True
    start = 0.0 if profile.kernel_costs is None else profile.kernel_costs.start_ns
    limit = 1 - profile.least_gain
    return all(
        total_cost(units, one, chosen) + start <= limit * total_cost(units, one, frozenset()) for one in profile.alone()
    )


def with_float_end(units: tuple[Unit, ...], profile: QuantProfile, chosen: frozenset[Unit]) -> frozenset[Unit]:
    """``chosen`` without the units at the graph's end that cost next to nothing in float.

    Nothing there clips or rounds what a sample louder than calibration's makes: a classifier's pooling and dense layer.
    Only where the target quantizes such a product on the fly: else its weights would be real.  What reads integers is
    not quantized so, as the graph says to which it is rounded: its weights are real, and that costs what they do.
    """
    if not (profile.dynamic and profile.costs):
        return chosen
    limit = total_cost(units, profile, chosen) * _UNNOTICED
    at = {node: unit for unit in units for node in unit.nodes}
    rest = best = chosen
    for unit in reversed(units):
        users = [at.get(use.node) for value in unit.outputs for use in value.uses()]
        if unit not in rest or any(user in rest for user in users):
            continue
        rest -= {unit}
        moves = unit.rule is not None and unit.rule.same_scale
        real = sum(_more_for_real_weights(each, at, rest, profile) for each in chosen - rest)
        if not moves and total_cost(units, profile, rest) + real <= limit:
            best = rest
        if len(chosen) - len(rest) == _LONGEST_END:
            break
    return best


def _more_for_real_weights(
    unit: Unit, at: Mapping[ir.Node, Unit], integer: frozenset[Unit], profile: QuantProfile
) -> float:
    """What a float product costs more than ``unit_cost`` says where its many weights are made real at load."""
    if unit.weight is None or elements(unit.weight[1]) <= SMALL_MATRIX or not _reads_integers(unit, at, integer):
        return 0.0
    return max(real_product(unit, profile) - unit_cost(unit, profile)[1], 0.0)


def _reads_integers(unit: Unit, at: Mapping[ir.Node, Unit], integer: frozenset[Unit]) -> bool:
    """Whether what it computes on comes from an integer unit, as it is or moved."""
    makers = [at.get(node) for value in unit.data.values() if (node := value.producer()) is not None]
    return any(
        maker in integer or (maker.rule is not None and maker.rule.same_scale and _reads_integers(maker, at, integer))
        for maker in makers
        if maker is not None
    )


def total_cost(units: tuple[Unit, ...], profile: QuantProfile, integer: frozenset[Unit]) -> float:
    """Nanoseconds of the whole graph by the cost table, conversions at the boundaries included.

    Without any integers there are none: see ``_always_converts``.
    """
    if not integer:
        return sum(unit_cost(unit, profile)[1] for unit in units)
    boundaries = _boundaries(units, profile)
    whole = integer | looked_up(units, profile, integer, boundaries)
    total = sum(unit_cost(unit, profile)[0 if unit in whole else 1] for unit in units)
    for one, other, cost in boundaries:
        for unit, neighbour in ((one, other), (other, one)):
            if unit not in whole and (neighbour in whole or _always_converts(unit, neighbour, profile)):
                total += cost
    return total


def _lookups(units: tuple[Unit, ...], profile: QuantProfile) -> Mapping[object, Unit]:
    """Units of what the target looks up in a table between integers, each with one that stands for all of it."""
    parts = [unit for unit in units if unit.kinds[-1] in profile.lookup]
    makers = {value: unit for unit in parts for value in unit.node.outputs}
    place: dict[object, Unit] = {}
    for unit in parts:
        ahead = [makers[value] for value in unit.node.inputs if value is not None and value in makers]
        joined = {place[each] for each in ahead}
        place[unit] = unit
        place.update({each: unit for each, stands in place.items() if stands in joined})
    return place


def looked_up(
    units: tuple[Unit, ...], profile: QuantProfile, integer: frozenset[Unit], boundaries: list[_Boundary] | None = None
) -> frozenset[Unit]:
    """Those that integers surround on every side, where looking up is cheaper than computing."""
    place = _lookups(units, profile)
    gains = dict.fromkeys(place.values(), 0.0)
    for unit in units:
        if unit in place:
            whole, real = unit_cost(unit, profile)
            gains[place[unit]] += real - whole
    for one, other, cost in boundaries or _boundaries(units, profile):
        for part, neighbour in ((one, other), (other, one)):
            if part in place and place.get(neighbour) is not place[part]:
                gains[place[part]] += cost if neighbour in integer else -_NEVER
    return frozenset(unit for unit in units if unit in place and gains[place[unit]] > 0)


def _always_converts(unit: object, neighbour: object, profile: QuantProfile) -> bool:
    """Whether a unit in float has integers at a border whatever its neighbour is: see ``exact_float``."""
    return isinstance(unit, Unit) and isinstance(neighbour, Unit) and can_be_exact(unit, profile)


def _is_elementwise(unit: Unit) -> bool:
    return unit.rule is not None and not unit.rule.same_scale and not unit.rule.weight_axis


def _worthwhile(able: list[Unit]) -> list[Unit]:
    """Without costs: everything with a rule, but no moves between float operators."""
    chosen = dict.fromkeys(able)
    while True:
        touching = {
            v for u in chosen if u.rule is not None and not u.rule.same_scale for v in (*u.data.values(), *u.outputs)
        }
        grew = True
        while grew:
            moves = [u for u in chosen if u.rule is not None and u.rule.same_scale]
            reached = {
                v for u in moves if touching & {*u.data.values(), *u.outputs} for v in (*u.data.values(), *u.outputs)
            }
            grew = not reached <= touching
            touching |= reached
        idle = [u for u in chosen if not touching & {*u.data.values(), *u.outputs}]
        if not idle:
            return list(chosen)
        for unit in idle:
            del chosen[unit]


def _boundaries(units: tuple[Unit, ...], profile: QuantProfile) -> list[_Boundary]:
    """Pairs of neighbours and what a conversion between them costs; the graph's ends count as float."""
    makers = {value: unit for unit in units for value in _all_outputs(unit)}
    pairs: list[_Boundary] = []
    for unit in units:
        for value in dict.fromkeys(v for node in unit.nodes for v in node.inputs if v is not None):
            if value in makers and makers[value] is unit:
                continue
            readers = max(1, len({use.node for use in value.uses()}))
            cost = conversion(value, profile) / readers
            if value in makers:
                pairs.append((unit, makers[value], cost))
            elif value.is_graph_input():
                pairs.append((unit, _FLOAT, cost))
        pairs += [(unit, _FLOAT, conversion(v, profile)) for v in unit.outputs if v.is_graph_output()]
    return pairs


def _all_outputs(unit: Unit) -> tuple[ir.Value, ...]:
    return tuple(value for node in unit.nodes for value in node.outputs)


_INTEGER, _FLOAT = "integer", "float"
_Boundary = tuple[object, object, float]
