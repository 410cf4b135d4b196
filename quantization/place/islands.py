"""Which units compute in integers: where integers pay, by the target's cost table.

Every unit is integer or float; a boundary between the two costs a conversion of the tensor.  The
cheapest labelling is a minimum cut, which is found exactly.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import replace

import onnx_ir as ir

from convertkit.profile import OpCost, QuantProfile
from convertkit.quantization.graph.sizes import elements, sizes
from convertkit.quantization.graph.units import Unit, constant, is_constant
from convertkit.quantization.place.dense import dense_cost, dense_shape
from convertkit.quantization.place.exact_float import can_be_exact
from convertkit.tiles import ConvShape, TransposedShape

_NEVER = 1e18
_UNKNOWN = OpCost(1.0, 1.0)
_UNNOTICED = 1.005
"""A float end may make the model dearer by this factor: the table is right to some percent, no clock would tell."""
_LONGEST_END = 12
"""Units at the end that are looked at; a convolution among them costs more than it may."""
_TIE_NS = 1e-3
"""Where both cost the same, integer wins: it is a quarter of the memory."""
_ON_THE_FLY = "DynamicQuantizeLinear"
_MATRIX = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})


def choose_integer(
    units: tuple[Unit, ...],
    profile: QuantProfile,
    *,
    insist: bool,
    keep_float: frozenset[str] = frozenset(),
    reluctance: float = 0.0,
) -> frozenset[Unit]:
    """The units that compute in integers.

    ``insist`` takes every unit that has a rule.  ``keep_float`` names units that stay float
    whatever they cost.  ``reluctance`` is a share by which integers count as dearer than they are, where float is
    nearly as fast: in elementwise operators.
    """
    able = [unit for unit in units if unit.rule is not None and unit.name not in keep_float]
    if insist or not profile.costs:
        return frozenset(able) if insist else frozenset(_worthwhile(able))
    cut = _Cut()
    allowed = set(able)
    place = _lookups(units, profile)
    for unit in units:
        integer, real = unit_cost(unit, profile)
        integer *= 1 + (reluctance if _is_elementwise(unit) else 0.0)
        at = place.get(unit, unit)
        cut.arc(_INTEGER, at, real)
        cut.arc(at, _FLOAT, integer - _TIE_NS if unit in allowed or unit in place else _NEVER)
    for one, other, cost in _boundaries(units, profile):
        for end, neighbour in ((one, other), (other, one)):
            if _always_converts(end, neighbour, profile):
                cut.arc(_INTEGER, place.get(end, end), cost)
            if not _always_converts(neighbour, end, profile):
                # A table is read between integers only: a neighbour in float leaves the computation in float, too.
                cut.arc(place.get(end, end), place.get(neighbour, neighbour), _NEVER if end in place else cost)
    chosen = frozenset(unit for unit in cut.near(_INTEGER) if isinstance(unit, Unit)) & allowed
    return chosen if _gains_enough(units, profile, chosen) else frozenset()


def _gains_enough(units: tuple[Unit, ...], profile: QuantProfile, chosen: frozenset[Unit]) -> bool:
    """Whether integers save ``profile.least_gain`` of the time, on each machine that the table knows.

    A table knows times to some percent only, and float is more exact.
    """
    if not profile.least_gain:
        return True
    tiles = profile.tiles
    machines = [profile] if tiles is None else [replace(profile, tiles=each) for each in tiles.machines()]
    start = 0.0 if tiles is None else tiles.start_ns
    limit = 1 - profile.least_gain
    return all(
        total_cost(units, one, chosen) + start <= limit * total_cost(units, one, frozenset()) for one in machines
    )


def with_float_end(units: tuple[Unit, ...], profile: QuantProfile, chosen: frozenset[Unit]) -> frozenset[Unit]:
    """``chosen`` without the units at the graph's end that cost next to nothing in float.

    Nothing there clips or rounds what a sample louder than calibration's makes: a classifier's pooling and dense layer.
    Only where the target quantizes such a product on the fly: else its weights would be real.
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
        if not moves and total_cost(units, profile, rest) <= limit:
            best = rest
        if len(chosen) - len(rest) == _LONGEST_END:
            break
    return best


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


def unit_cost(unit: Unit, profile: QuantProfile) -> tuple[float, float]:
    """Nanoseconds in integers and in float."""
    if profile.tiles is not None:
        shape = conv_shape(unit.node)
        if shape is not None:
            return profile.tiles.times(shape)
        dense = dense_shape(unit.node)
        if dense is not None:
            return dense_cost(unit, dense, profile.tiles, on_the_fly=unit.kinds[-1] in profile.dynamic)
    touched = {*unit.data.values(), *unit.outputs}
    integer, real = (profile.cost(unit.kinds) or _UNKNOWN).times(unit_work(unit), sum(map(elements, touched)))
    on_the_fly = profile.costs.get(_ON_THE_FLY)
    if on_the_fly is None or unit.kinds[-1] not in profile.dynamic or not unit.data:
        return integer, real
    return integer, integer + _rounding(unit, on_the_fly)


def _rounding(unit: Unit, cost: OpCost) -> float:
    """What it takes to quantize the rows that a product reads, and to write float."""
    (read,) = unit.data.values()
    rows = elements(read) / sizes(read)[-1]
    return rows * cost.times(sizes(read)[-1], elements(unit.outputs[0]) / rows)[1]


def unit_work(unit: Unit) -> float:
    """Multiply-adds of a matrix operator, else elements of the larger of input and output."""
    node = unit.node
    out = max((elements(value) for value in node.outputs), default=1)
    if node.op_type not in _MATRIX:
        return max([out, *(elements(value) for value in unit.data.values())])
    left, right = node.inputs[0], node.inputs[1]
    assert left is not None
    assert right is not None
    if node.op_type in ("MatMul", "Gemm"):
        shape = sizes(left)
        return out * (shape[-1] if shape else 1)
    if not is_constant(right):
        return out
    weight = constant(right).shape
    if node.op_type == "ConvTranspose":
        return elements(left) * math.prod(weight[1:])
    return out * math.prod(weight[1:])


def conv_shape(node: ir.Node) -> ConvShape | TransposedShape | None:
    """A convolution over images or signals without groups, whose weights are known; else None.

    The row of a dilated one counts as one pixel: it cannot be cut into wider ones.
    """
    kind = "" if node.domain else node.op_type
    weight = node.inputs[1] if kind in ("Conv", "ConvTranspose") else None
    if weight is None or not is_constant(weight) or node.attributes.get_int("group", 1) != 1:
        return None
    filters, channels, *window = constant(weight).shape
    rank, made = len(window), sizes(node.outputs[0])
    if rank not in (1, 2) or len(made) != rank + 2:
        return None
    strides = node.attributes.get_ints("strides", (1,) * rank)
    if kind == "ConvTranspose":
        return TransposedShape(math.prod(made[2:]), math.prod(window) / math.prod(strides), filters, channels)
    height = 1 if rank == 1 else int(window[0])
    width = made[-1] if set(node.attributes.get_ints("dilations", (1,))) == {1} else 1
    return ConvShape(math.prod(made[2:]), width, (height, int(window[-1])), int(strides[-1]), channels, filters)


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


def conversion(value: ir.Value, profile: QuantProfile) -> float:
    """Nanoseconds from float to integers or back."""
    return (profile.cost(("QuantizeLinear",)) or _UNKNOWN).times(elements(value), 0.0)[0]


def _all_outputs(unit: Unit) -> tuple[ir.Value, ...]:
    return tuple(value for node in unit.nodes for value in node.outputs)


_INTEGER, _FLOAT = "integer", "float"
_Boundary = tuple[object, object, float]


class _Cut:
    """A minimum cut between the two labels, by shortest augmenting paths."""

    def __init__(self) -> None:
        self._room: dict[object, dict[object, float]] = {}

    def arc(self, one: object, other: object, capacity: float) -> None:
        if one is other:
            return
        there = self._room.setdefault(one, {})
        there[other] = there.get(other, 0.0) + max(capacity, 0.0)
        self._room.setdefault(other, {}).setdefault(one, 0.0)

    def near(self, source: object) -> set[object]:
        """Everything that stays connected to ``source`` when the cheapest cut is made."""
        while True:
            before = self._search(source)
            if _FLOAT not in before:
                return set(before)
            self._augment(source, before)

    def _search(self, source: object) -> Mapping[object, object]:
        before: dict[object, object] = {source: source}
        queue = deque([source])
        while queue and _FLOAT not in before:
            here = queue.popleft()
            for there, room in self._room[here].items():
                if room > 1e-9 and there not in before:
                    before[there] = here
                    queue.append(there)
        return before

    def _augment(self, source: object, before: Mapping[object, object]) -> None:
        path, there = [], _FLOAT
        while there is not source:
            path.append((before[there], there))
            there = before[there]  # type: ignore[assignment]
        room = min(self._room[one][other] for one, other in path)
        for one, other in path:
            self._room[one][other] -= room
            self._room[other][one] += room
