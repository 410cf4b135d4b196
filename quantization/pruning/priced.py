"""What a model costs by the target's cost table with fewer channels, without making it.

A copy of the graph has constants without content, whose sizes and those of values are set for each question.  A unit's
cost depends on the groups that its operands belong to alone, so it is asked for once for each of their sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.edit import add_constant
from convertkit.profile import QuantProfile
from convertkit.quantization.graph.sizes import measure_sizes, resize
from convertkit.quantization.graph.units import Unit, constant, find_units
from convertkit.quantization.place.costs import unit_cost
from convertkit.quantization.pruning.channels import Cut
from convertkit.quantization.pruning.rules import follow
from convertkit.quantization.pruning.scores import Order
from convertkit.stage import Feed

Counts = tuple[int, ...]
"""How many units of each group stay."""


class Prices:
    """Nanoseconds of one call, of parts of the model and of all of it."""

    def __init__(self, model: ir.Model, orders: Sequence[Order], profile: QuantProfile, *, integers: bool,
                 feed: Feed | None, state: Mapping[str, Array]) -> None:  # fmt: skip
        copy = model.clone()
        if feed is not None:
            measure_sizes(copy, feed, state)
        self._profile, self._integers, self._orders = profile, integers, orders
        channels = follow(copy.graph)
        self._groups = {group: place for place, group in enumerate(channels.prunable())}
        self._layouts = channels.layouts
        self._cuts: dict[ir.Node, list[Cut]] = {}
        for cut in channels.cuts:
            self._cuts.setdefault(cut.node, []).append(cut)
        self._counted = channels.counts()
        _empty(copy.graph, channels.cuts)
        self._units = find_units(copy.graph, profile)
        self._touched = [self._of(unit) for unit in self._units]
        self._known: dict[tuple[int, Counts], float] = {}

    def of_group(self, place: int, counts: Counts) -> float:
        """Of all units that a group's size matters to."""
        return sum(self._unit(i, counts) for i, touched in enumerate(self._touched) if place in touched)

    def total(self, counts: Counts) -> float:
        """Of the whole model."""
        return sum(self._unit(i, counts) for i in range(len(self._units)))

    def neighbours(self, place: int) -> frozenset[int]:
        """The groups whose prices change with the size of one."""
        return frozenset(other for touched in self._touched if place in touched for other in touched)

    def _unit(self, index: int, counts: Counts) -> float:
        key = index, tuple(counts[place] for place in self._touched[index])
        if key not in self._known:
            unit = self._units[index]
            self._resize(unit, counts)
            integer, real = unit_cost(unit, self._profile)
            self._known[key] = integer if self._integers and unit.rule is not None else real
        return self._known[key]

    def _of(self, unit: Unit) -> tuple[int, ...]:
        layouts = [*(self._layouts[value] for value in _values(unit) if value in self._layouts),
                   *(cut.layout for node in unit.nodes for cut in self._cuts.get(node, ()))]  # fmt: skip
        found = {group.root for layout in layouts for group in layout.groups}
        return tuple(sorted(self._groups[group] for group in found if group in self._groups))

    def _resize(self, unit: Unit, counts: Counts) -> None:
        keep = {group: self._orders[place].kept(counts[place]) for group, place in self._groups.items()
                if place in self._of(unit)}  # fmt: skip
        for each in _values(unit):
            if (layout := self._layouts.get(each)) is not None:
                resize(each, layout.axis, len(layout.kept(keep)))
        for node in unit.nodes:
            for cut in self._cuts.get(node, ()):
                value = node.inputs[cut.index]
                assert value is not None
                resize(value, cut.axis, len(cut.layout.kept(keep)))
                value.const_value = _without_content(tuple(value.shape or ()), str(value.name))
            for name, layout in self._counted.get(node, ()):
                node.attributes[name] = ir.AttrInt64(name, len(layout.kept(keep)))


def _values(unit: Unit) -> list[ir.Value]:
    """All that the unit reads and makes, which its cost is asked of."""
    read = [value for node in unit.nodes for value in node.inputs if value is not None]
    return list(dict.fromkeys((*read, *(value for node in unit.nodes for value in node.outputs))))


def _empty(graph: ir.Graph, cuts: Sequence[Cut]) -> None:
    """A constant of its own for every operand that may shrink."""
    for node, index in dict.fromkeys((cut.node, cut.index) for cut in cuts):
        value = node.inputs[index]
        assert value is not None
        made = add_constant(graph, f"{value.name}_priced", np.zeros(0, constant(value).dtype))
        made.shape = ir.Shape(constant(value).shape)
        made.const_value = _without_content(constant(value).shape, str(made.name))
        node.replace_input_with(index, made)


def _without_content(shape: Sequence[object], name: str) -> ir.TensorProtocol:
    sizes = tuple(size for size in shape if isinstance(size, int))
    return ir.Tensor(np.broadcast_to(np.float32(0), sizes), name=name)
