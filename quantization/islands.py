"""Which units compute in integers: where integers pay, by the target's cost table.

Every unit is integer or float; a boundary between the two costs a conversion of the tensor.  The
cheapest labelling is a minimum cut, which is found exactly.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping

import onnx_ir as ir

from convertkit.profile import OpCost, QuantProfile
from convertkit.quantization.units import Unit, constant, is_constant
from convertkit.tiles import ConvShape

_NEVER = 1e18
_UNKNOWN = OpCost(1.0, 1.0)
_TIE_NS = 1e-3
"""Where both cost the same, integer wins: it is a quarter of the memory."""
_TYPICAL = 32
"""Stands for a symbolic height, width or length, so that no model counts as tiny; a batch counts as 1."""
_MATRIX = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})


def choose_integer(
    units: tuple[Unit, ...], profile: QuantProfile, *, insist: bool, keep_float: frozenset[str] = frozenset()
) -> frozenset[Unit]:
    """The units that compute in integers.

    ``insist`` takes every unit that has a rule.  ``keep_float`` names units that stay float
    whatever they cost.
    """
    able = [unit for unit in units if unit.rule is not None and unit.name not in keep_float]
    if insist or not profile.costs:
        return frozenset(able) if insist else frozenset(_worthwhile(units, able))
    cut = _Cut()
    allowed = set(able)
    for unit in units:
        integer, real = unit_cost(unit, profile)
        cut.arc(_INTEGER, unit, real)
        cut.arc(unit, _FLOAT, integer - _TIE_NS if unit in allowed else _NEVER)
    for one, other, cost in _boundaries(units, profile):
        cut.arc(one, other, cost)
        cut.arc(other, one, cost)
    chosen = frozenset(unit for unit in cut.near(_INTEGER) if isinstance(unit, Unit))
    if not profile.least_gain:
        return chosen
    # A table knows times to some percent only, and float is more exact.
    real, mixed = (total_cost(units, profile, each) for each in (frozenset[Unit](), chosen))
    return chosen if mixed <= real * (1 - profile.least_gain) else frozenset()


def total_cost(units: tuple[Unit, ...], profile: QuantProfile, integer: frozenset[Unit]) -> float:
    """Nanoseconds of the whole graph by the cost table, conversions at the boundaries included."""
    own = sum(unit_cost(unit, profile)[0 if unit in integer else 1] for unit in units)
    crossed = [cost for one, other, cost in _boundaries(units, profile) if (one in integer) != (other in integer)]
    return own + sum(crossed)


def unit_cost(unit: Unit, profile: QuantProfile) -> tuple[float, float]:
    """Nanoseconds in integers and in float."""
    shape = None if profile.tiles is None else conv_shape(unit.node)
    if profile.tiles is not None and shape is not None:
        return profile.tiles.times(shape)
    touched = {*unit.data.values(), *unit.outputs}
    return (profile.cost(unit.kinds) or _UNKNOWN).times(unit_work(unit), sum(map(_elements, touched)))


def unit_work(unit: Unit) -> float:
    """Multiply-adds of a matrix operator, else elements of the larger of input and output."""
    node = unit.node
    out = max((_elements(value) for value in node.outputs), default=1)
    if node.op_type not in _MATRIX:
        return max([out, *(_elements(value) for value in unit.data.values())])
    left, right = node.inputs[0], node.inputs[1]
    assert left is not None
    assert right is not None
    if node.op_type in ("MatMul", "Gemm"):
        shape = _sizes(left)
        return out * (shape[-1] if shape else 1)
    if not is_constant(right):
        return out
    weight = constant(right).shape
    if node.op_type == "ConvTranspose":
        return _elements(left) * math.prod(weight[1:])
    return out * math.prod(weight[1:])


def conv_shape(node: ir.Node) -> ConvShape | None:
    """A convolution over images or signals without groups and dilations, whose weights are known; else None."""
    weight = node.inputs[1] if node.op_type == "Conv" and not node.domain else None
    plain = node.attributes.get_int("group", 1) == 1 and set(node.attributes.get_ints("dilations", (1,))) == {1}
    if weight is None or not is_constant(weight) or not plain:
        return None
    filters, channels, *window = constant(weight).shape
    rank, sizes = len(window), _sizes(node.outputs[0])
    if rank not in (1, 2) or len(sizes) != rank + 2:
        return None
    stride = node.attributes.get_ints("strides", (1,) * rank)[-1]
    height = 1 if rank == 1 else int(window[0])
    return ConvShape(math.prod(sizes[2:]), sizes[-1], (height, int(window[-1])), int(stride), channels, filters)


def _worthwhile(units: tuple[Unit, ...], able: list[Unit]) -> list[Unit]:
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


def _boundaries(units: tuple[Unit, ...], profile: QuantProfile) -> list[tuple[object, object, float]]:
    """Pairs of neighbours and what a conversion between them costs; the graph's ends count as float."""
    makers = {value: unit for unit in units for value in _all_outputs(unit)}
    quantize = profile.cost(("QuantizeLinear",)) or _UNKNOWN
    pairs: list[tuple[object, object, float]] = []
    for unit in units:
        for value in dict.fromkeys(v for node in unit.nodes for v in node.inputs if v is not None):
            if value in makers and makers[value] is unit:
                continue
            readers = max(1, len({use.node for use in value.uses()}))
            cost = _conversion(value, quantize) / readers
            if value in makers:
                pairs.append((unit, makers[value], cost))
            elif value.is_graph_input():
                pairs.append((unit, _FLOAT, cost))
        pairs += [(unit, _FLOAT, _conversion(v, quantize)) for v in unit.outputs if v.is_graph_output()]
    return pairs


def _conversion(value: ir.Value, quantize: OpCost) -> float:
    return quantize.times(_elements(value), 0.0)[0]


def _all_outputs(unit: Unit) -> tuple[ir.Value, ...]:
    return tuple(value for node in unit.nodes for value in node.outputs)


def _sizes(value: ir.Value) -> tuple[int, ...]:
    if value.shape is None:
        return ()
    unknown = (1, *[_TYPICAL] * len(value.shape))[: len(value.shape)]
    return tuple(dim if isinstance(dim, int) else size for dim, size in zip(value.shape, unknown, strict=True))


def _elements(value: ir.Value) -> int:
    return math.prod(_sizes(value))


_INTEGER, _FLOAT = "integer", "float"


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
