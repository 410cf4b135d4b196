"""One way to quantize a model, as a value: it can be tried, compared and written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.edit import add_constant, drop_unused
from convertkit.profile import KEEP_FLOAT, WEIGHTED, QuantProfile
from convertkit.quantization.calibrate.flat import Flat, narrowed
from convertkit.quantization.calibrate.grids import Grid
from convertkit.quantization.calibrate.histogram import Histogram, Statistics
from convertkit.quantization.calibrate.ranges import WEIGHTED_MSE, Range, span
from convertkit.quantization.graph.units import Unit, constant, find_units
from convertkit.quantization.place.place import Placement, place
from convertkit.quantization.place.write import write
from convertkit.quantization.weights.integers import QuantizedWeight
from convertkit.quantization.weights.weight_only import store_weights


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that was decided, by names, so that it fits every copy of the model.

    ``integer`` are names of units.  ``method`` picks ranges, except for the groups whose first value
    is in ``methods``.  ``tuned`` are integers of weights and ``shifts`` what is added to the bias per
    output channel, by unit.  ``stored``: units that stay float have integer weights all the same, ``stored_integers``
    where data chose them; those in ``dynamic`` have them in any case, as their kernels quantize activations on the
    fly.  ``in_float`` are those of ``integer`` whose numbers a float kernel computes.
    """

    integer: frozenset[str]
    method: str
    methods: Mapping[str, str] = field(default_factory=dict)
    tuned: Mapping[str, QuantizedWeight] = field(default_factory=dict)
    shifts: Mapping[str, Array] = field(default_factory=dict)
    stored: bool = False
    dynamic: frozenset[str] = frozenset()
    in_float: frozenset[str] = frozenset()
    stored_integers: Mapping[str, QuantizedWeight] = field(default_factory=dict)

    def method_of(self, names: tuple[str, ...]) -> str:
        """The method of one group of values that share parameters."""
        return next((self.methods[name] for name in names if name in self.methods), self.method)


@dataclass(frozen=True, slots=True)
class Traits:
    """What is known of tensors beside their statistics, by name.

    ``weighted`` are histograms that count how much the outputs depend on values.
    """

    flats: Mapping[str, Flat] = field(default_factory=dict)
    grids: Mapping[str, Grid] = field(default_factory=dict)
    weighted: Mapping[str, Histogram] = field(default_factory=dict)


class Ranges:
    """Ranges of groups of values, each searched once."""

    def __init__(self, statistics: Mapping[str, Statistics], profile: QuantProfile, traits: Traits = Traits()) -> None:
        self.statistics, self.profile, self.traits = statistics, profile, traits
        self._known: dict[tuple[tuple[str, ...], str], Range] = {}

    def of(self, names: tuple[str, ...], joint: Callable[[], Statistics], plan: Plan) -> Range:
        """The range that the plan's method picks for the group."""
        key = names, plan.method_of(names)
        if key not in self._known:
            self._known[key] = self._search(names, joint(), key[1])
        return self._known[key]

    def _search(self, names: tuple[str, ...], seen: Statistics, method: str) -> Range:
        dtype, symmetric = self.profile.activation, self.profile.symmetric
        exact = self._on_grid(names, seen)
        if exact is not None:
            return exact
        weighted = self._weighted(names) if method == WEIGHTED_MSE else None
        found = span(seen if weighted is None else replace(seen, histogram=weighted), method, dtype, symmetric)
        flat = self.traits.flats.get(names[0]) if len(names) == 1 and dtype != "int16" else None
        return found if flat is None else narrowed(found, seen.histogram, flat, dtype, symmetric)

    def _on_grid(self, names: tuple[str, ...], seen: Statistics) -> Range | None:
        """The range that rounds nothing, where all these values are those of one input on a grid."""
        grid = self.traits.grids.get(names[0])
        if grid is None or any(self.traits.grids.get(name) is not grid for name in names):
            return None
        kind = np.iinfo(self.profile.activation)
        return grid.range(seen.low, seen.high, kind.max - kind.min, self.profile.symmetric)

    def _weighted(self, names: tuple[str, ...]) -> Histogram | None:
        """The histogram of all these values by their weights; None where those of one are not known."""
        if any(name not in self.traits.weighted for name in names):
            return None
        joint = Histogram()
        for name in names:
            joint.merge(self.traits.weighted[name])
        return joint

    def known(self, names: tuple[str, ...], method: str) -> Range | None:
        """The range that a method picked before; None where it was not asked."""
        return self._known.get((names, method))


def placed(units: tuple[Unit, ...], plan: Plan, ranges: Ranges) -> Placement:
    """The plan's parameters for one copy of the model."""
    integer = frozenset(unit for unit in units if unit.name in plan.integer)
    pick = partial(ranges.of, plan=plan)
    return place(units, integer, ranges.profile, ranges.statistics, pick)


def apply(model: ir.Model, plan: Plan, ranges: Ranges) -> Placement:
    """Quantize ``model`` in place."""
    units = find_units(model.graph, ranges.profile)
    placement = placed(units, plan, ranges)
    for unit in units:
        if unit.name in plan.shifts and unit.bias is not None and unit in placement.integer:
            shift_bias(model.graph, unit, plan.shifts[unit.name])
    write(model, units, placement, ranges.profile, plan.tuned)
    for unit in placement.integer:
        if unit.name in plan.in_float:
            unit.node.metadata_props[KEEP_FLOAT] = "the float kernel is the faster one"
    # Those of operators that have no integer kernel, too; integer units' weights are not constants any more.
    real = weighted_units(model.graph, ranges.profile)
    stored = [unit for unit in real if plan.stored or unit.name in plan.dynamic]
    store_weights(model.graph, stored, ranges.profile, plan.stored_integers)
    drop_unused(model.graph)
    return placement


def weighted_units(graph: ir.Graph, profile: QuantProfile) -> tuple[Unit, ...]:
    """Units by the profile's rules and those of weights, which operators without an integer kernel may have, too."""
    return find_units(graph, replace(profile, operators={**WEIGHTED, **profile.operators}))


def shift_bias(graph: ir.Graph, unit: Unit, shift: Array) -> None:
    """Add ``shift`` (one value per output channel) to the unit's float bias."""
    assert unit.bias is not None
    node, index = unit.bias
    source = node.inputs[index]
    assert source is not None
    shifted = add_constant(graph, f"{source.name}_shifted", (constant(source) + shift).astype("float32"))
    node.replace_input_with(index, shifted)
