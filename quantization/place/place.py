"""Which values become integers, and with which parameters.

The rules come from the target's profile: operators that only move data share parameters between
inputs and outputs, some kernels prescribe their output's, and a float operator's input is not touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from convertkit.profile import FixedOutput, QuantProfile
from convertkit.quantization.calibrate.histogram import Statistics
from convertkit.quantization.calibrate.ranges import Affine, Range, affine
from convertkit.quantization.graph.units import Unit, constant
from convertkit.quantization.place.curves import CurvedScales, curves
from convertkit.quantization.place.rescaling import rescalings
from convertkit.quantization.place.ties import Product, invertible, joined, tie_free_scales

Pick = Callable[[tuple[str, ...], Callable[[], Statistics]], Range]
"""From the names of the values that share parameters, and a way to their joint statistics, to their range."""

Edge = tuple[Unit, int]
"""One data input of one unit."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The decision: units that compute in integers, and parameters of what they read and write.

    ``values`` are quantized where they are made, ``edges`` again in front of one reader, which needs
    other parameters; ``groups`` are the names of values that share parameters.
    """

    integer: frozenset[Unit]
    values: Mapping[ir.Value, Affine]
    edges: Mapping[Edge, Affine]
    groups: tuple[tuple[str, ...], ...]


def place(
    units: tuple[Unit, ...],
    integer: frozenset[Unit],
    profile: QuantProfile,
    statistics: Mapping[str, Statistics],
    pick: Pick,
) -> Placement:
    """Parameters for everything that the integer units read and write."""
    groups = _Groups(units, integer)
    shared = tuple(groups.members())
    parameters = [_parameters(members, groups, profile, statistics, pick) for members in shared]
    if profile.tie_free:
        parameters = _tie_free([unit for unit in units if unit in integer], groups, shared, parameters)
    values = {value: each for members, each in zip(shared, parameters, strict=True) for value in members}
    named = [tuple(str(value.name) for value in members) for members in shared]
    edges = {edge: values[groups.wanted(edge)] for edge in groups.requantized}
    return Placement(integer, values, edges, tuple(named))


def _parameters(
    members: tuple[ir.Value, ...],
    groups: _Groups,
    profile: QuantProfile,
    statistics: Mapping[str, Statistics],
    pick: Pick,
) -> Affine:
    fixed = groups.fixed_of(members[0])
    if fixed is not None:
        return Affine(fixed.scale, fixed.zero_point, profile.activation)

    def joint() -> Statistics:
        return _joint(members, groups, statistics)

    span = pick(tuple(str(value.name) for value in members), joint)
    return affine(span, profile.activation, profile.symmetric or groups.is_centered(members[0]))


def _tie_free(
    units: Sequence[Unit], groups: _Groups, shared: Sequence[Sequence[ir.Value]], parameters: Sequence[Affine]
) -> list[Affine]:
    """The same parameters with scales at which kernels agree; see ``ties``."""
    index_of = {value: index for index, members in enumerate(shared) for value in members}
    fixed = {i: each.scale for i, each in enumerate(parameters) if groups.fixed_of(shared[i][0]) is not None}
    entered = [i for i, members in enumerate(shared) if any(value.is_graph_input() for value in members)]
    fixed |= {i: invertible(parameters[i].scale) for i in entered if i not in fixed}
    sums, products = rescalings(units, index_of)
    moved = [
        Product((index_of[unit.data[place]],), index_of[groups.wanted((unit, place))])
        for unit, place in groups.requantized
    ]
    wanted = [each.scale for each in parameters]
    scales = tie_free_scales(wanted, fixed, sums, (*products, *moved))
    if found := curves(units, index_of):
        curved = CurvedScales(scales, [each.zero_point for each in parameters], joined(len(scales), sums), fixed)
        for curve in found:
            curved.meet(curve)
        summed = {i: scales[i] for each in sums for i in (*each.terms, each.result)}
        scales = tie_free_scales(wanted, summed | curved.decided | fixed, sums, (*products, *moved))
    return [replace(each, scale=float(np.float32(scale))) for each, scale in zip(parameters, scales, strict=True)]


def _joint(members: tuple[ir.Value, ...], groups: _Groups, statistics: Mapping[str, Statistics]) -> Statistics:
    joint = Statistics()
    for value in groups.sources(members):
        joint.merge(deepcopy(statistics[str(value.name)]))
    for value in groups.constants_of(members):
        array = constant(value)
        joint.add(float(array.min()), float(array.max()), array)
    if joint.samples == 0:
        joint.low = joint.high = 0.0
    return joint


class _Groups:
    """Values that must share parameters, found by following the operators that only move data."""

    def __init__(self, units: tuple[Unit, ...], integer: frozenset[Unit]) -> None:
        self._parent: dict[ir.Value, ir.Value] = {}
        self._fixed: dict[ir.Value, FixedOutput] = {}
        self._centered: set[ir.Value] = set()
        self._moved: set[ir.Value] = set()
        self._constants: dict[ir.Value, list[ir.Value]] = {}
        self.requantized: list[Edge] = []
        chosen = [unit for unit in units if unit in integer]
        for unit in chosen:
            for value in (*unit.data.values(), *unit.outputs):
                self._parent.setdefault(value, value)
            if unit.rule is not None and unit.rule.centered:
                self._centered.update(unit.data.values())
            if unit.rule is not None and unit.rule.fixed_output is not None:
                self._fixed.update(dict.fromkeys(unit.outputs, unit.rule.fixed_output))
        for unit in chosen:
            if unit.rule is not None and unit.rule.same_scale:
                self._share(unit)
        self._centered = {self._root(value) for value in self._centered}

    def members(self) -> Iterator[tuple[ir.Value, ...]]:
        """The groups, in graph order."""
        found: dict[ir.Value, list[ir.Value]] = {}
        for value in self._parent:
            found.setdefault(self._root(value), []).append(value)
        return (tuple(values) for values in found.values())

    def fixed_of(self, value: ir.Value) -> FixedOutput | None:
        return self._fixed.get(self._root(value))

    def is_centered(self, value: ir.Value) -> bool:
        """Whether a reader takes no zero point of what shares parameters with ``value``."""
        return self._root(value) in self._centered

    def sources(self, members: tuple[ir.Value, ...]) -> tuple[ir.Value, ...]:
        """Members whose values are not copies of other members' values."""
        return tuple(value for value in members if value not in self._moved)

    def constants_of(self, members: tuple[ir.Value, ...]) -> tuple[ir.Value, ...]:
        return tuple(value for member in members for value in self._constants.get(member, ()))

    def wanted(self, edge: Edge) -> ir.Value:
        """The value whose parameters a requantized edge takes: its reader's output."""
        return edge[0].outputs[0]

    def _share(self, unit: Unit) -> None:
        target = unit.outputs[0]
        several = len(set(unit.data.values())) > 1
        complete = not unit.constants or bool(unit.data)
        for index, value in unit.data.items():
            fixed, wanted = self.fixed_of(value), self.fixed_of(target)
            if fixed != wanted and (several or wanted is not None):
                self.requantized.append((unit, index))
                complete = False
            else:
                self._union(value, target)
        for other in unit.outputs[1:]:
            self._union(other, target)
        self._constants.setdefault(target, []).extend(unit.constants.values())
        if complete:
            self._moved.update(unit.outputs)

    def _union(self, one: ir.Value, other: ir.Value) -> None:
        first, second = self._root(one), self._root(other)
        if first is second:
            return
        fixed = self._fixed.get(first) or self._fixed.get(second)
        self._parent[second] = first
        if fixed is not None:
            self._fixed[first] = fixed

    def _root(self, value: ir.Value) -> ir.Value:
        while self._parent[value] is not value:
            self._parent[value] = self._parent[self._parent[value]]
            value = self._parent[value]
        return value
