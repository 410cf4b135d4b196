"""Which channels of a graph belong together, so that whole ones can be removed everywhere at once.

A convolution's output channel lives on in everything that is computed from it element by element, meets
others where tensors are added, stands beside others where they are concatenated, and ends where a matrix
product sums over it.  Channels that must go together form a group; whatever else looks at channels
(a graph output, a softmax, a normalisation across channels) freezes its groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.edit import add_constant
from convertkit.quantization.graph.units import constant


class Group:
    """Channels that are kept or removed together: ``size`` of them, ``frozen`` where all must stay."""

    def __init__(self, size: int, *, frozen: bool = False) -> None:
        self.size, self._frozen = size, frozen
        self._joined: Group | None = None

    @property
    def root(self) -> Group:
        """The group that this one was joined to."""
        return self if self._joined is None else self._joined.root

    @property
    def frozen(self) -> bool:
        """Whether no channel of it may go."""
        return self.root._frozen

    def freeze(self) -> None:
        """Keep every channel."""
        self.root._frozen = True

    def join(self, other: Group) -> None:
        """Let both be one: their channels meet, index by index."""
        one, two = self.root, other.root
        if one is not two:
            one._frozen |= two._frozen
            two._joined = one


@dataclass(frozen=True, slots=True)
class Layout:
    """The channels along ``axis`` of a value: groups side by side, each channel ``repeat`` entries long."""

    axis: int
    groups: tuple[Group, ...]
    repeats: tuple[int, ...]

    @property
    def size(self) -> int:
        """Entries along the axis."""
        return sum(group.size * repeat for group, repeat in zip(self.groups, self.repeats, strict=True))

    def kept(self, keep: Mapping[Group, Array]) -> Array:
        """Entries along the axis that stay; ``keep`` holds the channels of groups that lose some."""
        parts, start = [], 0
        for group, repeat in zip(self.groups, self.repeats, strict=True):
            channels = keep.get(group.root, np.arange(group.size))
            parts.append(start + (channels[:, None] * repeat + np.arange(repeat)).ravel())
            start += group.size * repeat
        return np.concatenate(parts)

    def freeze(self) -> None:
        """Keep every channel of every group."""
        for group in self.groups:
            group.freeze()


@dataclass(frozen=True, slots=True)
class Cut:
    """A constant operand that shrinks along ``axis`` with a layout; ``summed`` where a product sums over it."""

    node: ir.Node
    index: int
    axis: int
    layout: Layout
    summed: bool = False


class Channels:
    """The groups of one graph, and every constant that shrinks with them."""

    def __init__(self, graph: ir.Graph) -> None:
        self.cuts: list[Cut] = []
        self.layouts: dict[ir.Value, Layout] = {}
        self._graph = graph
        self._depthwise: list[tuple[ir.Node, Layout]] = []
        self._flattened: list[tuple[ir.Node, Layout]] = []

    def prunable(self) -> tuple[Group, ...]:
        """Groups that a product sums over and nothing freezes, in graph order."""
        found = [group.root for cut in self.sums() for group in cut.layout.groups]
        return tuple(group for group in dict.fromkeys(found) if not group.frozen)

    def sums(self) -> tuple[Cut, ...]:
        """The weights that sum over channels."""
        return tuple(cut for cut in self.cuts if cut.summed)

    def shrink(self, keep: Mapping[Group, Array]) -> None:
        """Remove the other channels from every constant, in place."""
        for cut in self.cuts:
            value = cut.node.inputs[cut.index]
            assert value is not None
            stays = cut.layout.kept(keep)
            if len(stays) < cut.layout.size:
                array = np.ascontiguousarray(np.take(constant(value), stays, cut.axis))
                cut.node.replace_input_with(cut.index, add_constant(self._graph, f"{value.name}_kept", array))
        for node, layout in self._depthwise:
            node.attributes["group"] = ir.AttrInt64("group", len(layout.kept(keep)))
        for node, layout in self._flattened:
            if len(layout.kept(keep)) == layout.size:
                continue
            shape = add_constant(self._graph, f"{node.name}_flat", np.array([0, -1], np.int64))
            node.replace_input_with(1, shape)
        for value, layout in self.layouts.items():
            if value.shape is not None:
                sizes = list(value.shape)
                sizes[layout.axis] = len(layout.kept(keep))
                value.shape = ir.Shape(sizes)

    def of(self, value: ir.Value | None) -> Layout | None:
        """The layout of a value, None where its channels are not followed."""
        return None if value is None else self.layouts.get(value)

    def freeze(self, values: Iterable[ir.Value | None]) -> None:
        """Keep all channels of these values."""
        for value in values:
            if (layout := self.of(value)) is not None:
                layout.freeze()

    def cut(self, node: ir.Node, index: int, axis: int, layout: Layout, *, summed: bool = False) -> None:
        """Note that a constant shrinks, where the node has it."""
        if index < len(node.inputs) and node.inputs[index] is not None:
            self.cuts.append(Cut(node, index, axis, layout, summed))

    def depthwise(self, node: ir.Node, layout: Layout) -> None:
        """Note that a convolution has as many groups as channels."""
        self._depthwise.append((node, layout))

    def flattened(self, node: ir.Node, layout: Layout) -> None:
        """Note that a Reshape names a size that shrinks."""
        self._flattened.append((node, layout))
