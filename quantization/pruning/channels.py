"""Which channels of a graph belong together, so that whole ones can be removed everywhere at once.

A convolution's output channel lives on in everything that is computed from it element by element, meets
others where tensors are added, stands beside others where they are concatenated, and ends where a matrix
product sums over it.  Channels that must go together form a group; whatever else looks at channels
(a graph output, a softmax, a normalisation across channels) freezes its groups.  Channels of one group may be tied to
each other: those of an attention head go together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.edit import add_constant
from convertkit.quantization.graph.units import constant
from convertkit.quantization.pruning.group import Group


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The channels along ``axis`` of a value: of each entry the group, by its place in ``groups``, and the channel."""

    axis: int
    groups: tuple[Group, ...]
    owner: Array
    channel: Array

    @property
    def size(self) -> int:
        """Entries along the axis."""
        return len(self.owner)

    @property
    def distinct(self) -> bool:
        """Whether no channel comes twice."""
        return len(np.unique(np.stack([self.owner, self.channel]), axis=1).T) == self.size

    def kept(self, keep: Mapping[Group, Array]) -> Array:
        """Entries along the axis that stay; ``keep`` holds the units of groups that lose some."""
        stays = np.ones(self.size, bool)
        for place, group in enumerate(self.groups):
            if group.root in keep:
                mine = self.owner == place
                stays[mine] = np.isin(self.units(place)[mine], keep[group.root])
        return np.flatnonzero(stays)

    def units(self, place: int) -> Array:
        """Of each entry the unit, where it belongs to the group at ``place``."""
        channels = np.where(self.owner == place, self.channel, 0)
        return np.asarray(self.groups[place].unit[channels])

    def picked(self, entries: Array, axis: int | None = None) -> Layout:
        """The layout of a value with these entries, which may come more than once."""
        return replace(
            self, axis=self.axis if axis is None else axis, owner=self.owner[entries], channel=self.channel[entries]
        )

    def tied(self, labels: Array) -> bool:
        """Let entries of the same label go together; False where they belong to different groups."""
        if any(len(set(self.owner[labels == label].tolist())) > 1 for label in np.unique(labels)):
            return False
        for place, group in enumerate(self.groups):
            mine = np.flatnonzero(self.owner == place)
            # Of a channel that comes more than once, all that its entries are tied to.
            for entries in (mine[labels[mine] == label] for label in np.unique(labels[mine])):
                alone = np.arange(group.size)
                alone[self.channel[entries]] = self.channel[entries].min()
                group.tie(alone)
        return True

    def freeze(self) -> None:
        """Keep every channel of every group."""
        for group in self.groups:
            group.freeze()


def layout_of(group: Group, axis: int) -> Layout:
    """The channels of one group, each one entry."""
    return Layout(axis, (group,), np.zeros(group.size, int), np.arange(group.size))


def layout_nothing() -> Layout:
    """What becomes of an operator without channels that could be followed."""
    return Layout(0, (), np.zeros(0, int), np.zeros(0, int))


def beside(parts: Iterable[Layout], axis: int) -> Layout:
    """Layouts side by side along one axis."""
    groups: tuple[Group, ...] = ()
    owners, channels = [], []
    for part in parts:
        owners.append(part.owner + len(groups))
        channels.append(part.channel)
        groups += part.groups
    return Layout(axis, groups, np.concatenate(owners), np.concatenate(channels))


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """A constant operand that shrinks along ``axis`` with a layout; ``read`` is what a product sums over with it."""

    node: ir.Node
    index: int
    axis: int
    layout: Layout
    read: ir.Value | None = None

    @property
    def summed(self) -> bool:
        """Whether a product sums over the channels."""
        return self.read is not None


class Channels:
    """The groups of one graph, and every constant that shrinks with them."""

    def __init__(self, graph: ir.Graph) -> None:
        self.cuts: list[Cut] = []
        self.layouts: dict[ir.Value, Layout] = {}
        self._graph = graph
        self._counted: list[tuple[ir.Node, str, Layout]] = []
        self._reshaped: list[tuple[ir.Node, int, Layout]] = []
        self._split: list[tuple[ir.Node, tuple[Layout, ...]]] = []

    def prunable(self) -> tuple[Group, ...]:
        """Groups that a product sums over, that nothing freezes and that have two units or more, in graph order."""
        found = [group.root for cut in self.sums() for group in cut.layout.groups]
        return tuple(group for group in dict.fromkeys(found) if not group.frozen and group.units > 1)

    def sums(self) -> tuple[Cut, ...]:
        """The weights that sum over channels."""
        return tuple(cut for cut in self.cuts if cut.summed)

    def kept(self, keep: Mapping[Group, Array]) -> dict[str, tuple[int, Array]]:
        """By the name of each value that gets smaller its axis and the entries that stay."""
        found = {}
        for value, layout in self.layouts.items():
            stays = layout.kept(keep)
            if len(stays) < layout.size:
                found[str(value.name)] = layout.axis, stays
        return found

    def shrink(self, keep: Mapping[Group, Array]) -> None:
        """Remove the other units from every constant, in place."""
        for cut in self.cuts:
            value = cut.node.inputs[cut.index]
            assert value is not None
            stays = cut.layout.kept(keep)
            if len(stays) < cut.layout.size:
                array = np.ascontiguousarray(np.take(constant(value), stays, cut.axis))
                cut.node.replace_input_with(cut.index, add_constant(self._graph, f"{value.name}_kept", array))
        for node, name, layout in self._counted:
            node.attributes[name] = ir.AttrInt64(name, len(layout.kept(keep)))
        for node, axis, layout in self._reshaped:
            if len(layout.kept(keep)) < layout.size:
                self._reshape(node, axis, len(layout.kept(keep)))
        for node, parts in self._split:
            lengths = np.array([len(part.kept(keep)) for part in parts], np.int64)
            node.replace_input_with(1, add_constant(self._graph, f"{node.name}_sizes", lengths))
        for value, layout in self.layouts.items():
            if value.shape is not None:
                sizes = list(value.shape)
                sizes[layout.axis] = len(layout.kept(keep))
                value.shape = ir.Shape(sizes)

    def _reshape(self, node: ir.Node, axis: int, size: int) -> None:
        value = node.inputs[1]
        assert value is not None
        sizes = constant(value).copy()
        sizes[axis] = size
        node.replace_input_with(1, add_constant(self._graph, f"{value.name}_kept", sizes))

    def of(self, value: ir.Value | None) -> Layout | None:
        """The layout of a value, None where its channels are not followed."""
        return None if value is None else self.layouts.get(value)

    def freeze(self, values: Iterable[ir.Value | None]) -> None:
        """Keep all channels of these values."""
        for value in values:
            if (layout := self.of(value)) is not None:
                layout.freeze()

    def cut(self, node: ir.Node, index: int, axis: int, layout: Layout, read: ir.Value | None = None) -> None:
        """Note that a constant shrinks, where the node has it."""
        if index < len(node.inputs) and node.inputs[index] is not None:
            self.cuts.append(Cut(node, index, axis, layout, read))

    def counted(self, node: ir.Node, attribute: str, layout: Layout) -> None:
        """Note that an attribute is the number of entries: the groups of a convolution, the size of a state."""
        self._counted.append((node, attribute, layout))

    def counts(self) -> dict[ir.Node, list[tuple[str, Layout]]]:
        """The attributes that are numbers of entries, by their nodes."""
        found: dict[ir.Node, list[tuple[str, Layout]]] = {}
        for node, name, layout in self._counted:
            found.setdefault(node, []).append((name, layout))
        return found

    def reshaped(self, node: ir.Node, axis: int, layout: Layout) -> None:
        """Note that a Reshape names a size that shrinks, at ``axis`` of what it makes."""
        self._reshaped.append((node, axis, layout))

    def split(self, node: ir.Node, parts: tuple[Layout, ...]) -> None:
        """Note that a Split has sizes of its own, which shrink."""
        self._split.append((node, parts))
