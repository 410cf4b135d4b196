"""How channels go through operators that move values: the rules of Reshape, Transpose, Split, Concat and their like."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.quantization.graph.units import constant, is_constant
from convertkit.quantization.pruning.channels import Channels, Layout, beside, layout_nothing, layout_of
from convertkit.quantization.pruning.group import Group

Sizes = Sequence[object]


def fixed(node: ir.Node, index: int) -> Array | None:
    """The operand where it is an initializer."""
    value = node.inputs[index] if index < len(node.inputs) else None
    return constant(value) if value is not None and is_constant(value) else None


def rank(value: ir.Value | None) -> int | None:
    """How many axes a value has."""
    return None if value is None or value.shape is None else len(value.shape)


def concat(channels: Channels, node: ir.Node) -> Layout | None:
    """Channels side by side, or the same ones at other places."""
    axes = rank(node.outputs[0]) or rank(node.inputs[0])
    if axes is None:
        return None
    axis = node.attributes.get_int("axis", 0) % axes
    layouts = [channels.of(value) or _whole(value, axis) for value in node.inputs]
    known = [each for each in layouts if each is not None]
    if len(known) != len(layouts) or len({each.axis for each in known}) > 1:
        return None
    if known[0].axis != axis:
        return known[0] if all(meets(known[0], other) for other in known[1:]) else None
    return beside(known, axis)


def _whole(value: ir.Value | None, axis: int) -> Layout | None:
    """A value without channels of its own as one that keeps them all."""
    size = None if value is None or value.shape is None else value.shape[axis]
    return layout_of(Group(size, frozen=True), axis) if isinstance(size, int) else None


def meets(layout: Layout, other: Layout) -> bool:
    """Join two layouts entry by entry; one channel broadcasts, and stays."""
    if other.axis != layout.axis:
        return False
    if other.size == 1 != layout.size:
        other.freeze()
        return True
    sizes = [[group.size for group in each.groups] for each in (layout, other)]
    same = np.array_equal(layout.owner, other.owner) and np.array_equal(layout.channel, other.channel)
    if sizes[0] == sizes[1] and same:
        for one, two in zip(layout.groups, other.groups, strict=True):
            one.join(two)
        return True
    if layout.size != other.size or not (layout.distinct and other.distinct):
        return False
    for pair in np.unique(np.stack([layout.owner, other.owner]), axis=1).T:
        here = (layout.owner == pair[0]) & (other.owner == pair[1])
        layout.groups[pair[0]].join_some(layout.channel[here], other.groups[pair[1]], other.channel[here])
    return True


def flatten(channels: Channels, node: ir.Node) -> Layout | None:
    """``(N, C, H, W)`` as ``(N, C·H·W)``: a channel becomes H·W neighbours."""
    value, layout = node.inputs[0], channels.of(node.inputs[0])
    axes = rank(value)
    if layout is None or value is None or value.shape is None or axes is None:
        return None
    middle = node.attributes.get_int("axis", 1) % (axes + 1)
    first, last = (0, middle) if layout.axis < middle else (middle, axes)
    return _merged(layout, list(value.shape)[first:last], first, int(layout.axis >= middle))


def reshape(channels: Channels, node: ir.Node) -> Layout | None:
    """Axes that become one, or one that becomes several: then what shares a place along the axis of heads is tied."""
    value, layout, wanted = node.inputs[0], channels.of(node.inputs[0]), fixed(node, 1)
    made = node.outputs[0].shape
    if layout is None or value is None or value.shape is None or wanted is None or made is None:
        return None
    if node.attributes.get_int("allowzero", 0) == 1 and not wanted.all():
        return None
    found = _segment(list(value.shape), list(made), layout.axis)
    if found is None:
        return None
    (first, last), (start, end) = found
    entries = _entries(layout, list(value.shape)[first:last], first)
    if entries is None:
        return None
    answer = _split(layout, entries, [int(size) for size in made[start:end] if isinstance(size, int)], start)
    if answer is not None:
        channels.reshaped(node, answer.axis, answer)
    return answer


def _merged(layout: Layout, sizes: Sizes, first: int, axis: int) -> Layout | None:
    entries = _entries(layout, sizes, first)
    return None if entries is None else layout.picked(entries.ravel(), axis)


def _entries(layout: Layout, sizes: Sizes, first: int) -> Array | None:
    """Of each element along axes of ``sizes``, the first of them ``first``, its entry along the layout's."""
    known = [size for size in sizes if isinstance(size, int)]
    place = layout.axis - first
    if len(known) != len(sizes) or known[place] != layout.size:
        return None
    shape = [layout.size if axis == place else 1 for axis in range(len(known))]
    return np.broadcast_to(np.arange(layout.size).reshape(shape), known)


def _split(layout: Layout, entries: Array, sizes: Sequence[int], start: int) -> Layout | None:
    """The layout along the one of several axes that counts heads."""
    if math.prod(sizes) != entries.size:
        return None
    wide = [axis for axis, size in enumerate(sizes) if size > 1]
    if not wide:
        return layout.picked(entries.ravel()[:1], start)
    # Queries, keys and values of all heads side by side come as (3, heads, depth).
    chosen = wide[1] if len(wide) > 2 and sizes[wide[0]] <= 3 else wide[0]
    rows = np.moveaxis(entries.reshape(sizes), chosen, 0).reshape(sizes[chosen], -1)
    if rows.shape[1] > 1 and not _tied(layout, rows):
        return None
    return layout.picked(rows[:, 0], start + chosen)


def _tied(layout: Layout, rows: Array) -> bool:
    """Let the entries of each row go together; entries of several rows tie all of these."""
    if len(np.unique(rows)) < rows.size:
        distinct = [np.unique(row) for row in rows]
        if all(len(each) == 1 for each in distinct):
            return True
        if sum(map(len, distinct)) > len(np.unique(rows)):
            return False
    labels = np.empty(layout.size, int)
    labels[rows] = np.broadcast_to(np.arange(len(rows))[:, None], rows.shape)
    return layout.tied(labels)


def _segment(before: Sizes, after: Sizes, axis: int) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """The axes around ``axis`` that become others, from and up to where as many elements lie on both sides."""
    for step in (1, -1):
        one, other = list(before)[::step], list(after)[::step]
        place = axis if step == 1 else len(before) - 1 - axis
        found = _forwards(one, other, place)
        if found is not None and step == 1:
            return found
        if found is not None:
            (a, b), (c, d) = found
            return (len(before) - b, len(before) - a), (len(after) - d, len(after) - c)
    return None


def _forwards(before: Sizes, after: Sizes, place: int) -> tuple[tuple[int, int], tuple[int, int]] | None:
    i = j = 0
    while i < len(before) and j < len(after):
        a, b = i, j
        i, j = i + 1, j + 1
        if before[a] == after[b] and a != place:
            continue
        one, other = before[a], after[b]
        while isinstance(one, int) and isinstance(other, int) and one != other:
            if one < other and i < len(before):
                size = before[i]
                one, i = one * size if isinstance(size, int) else size, i + 1
            elif one > other and j < len(after):
                size = after[j]
                other, j = other * size if isinstance(size, int) else size, j + 1
            else:
                return None
        if not isinstance(one, int) or one != other:
            return None
        if a <= place < i:
            return (a, i), (b, j)
    return None


def reduce(channels: Channels, node: ir.Node) -> Layout | None:
    """Of other axes than the channels'."""
    layout, axes = channels.of(node.inputs[0]), rank(node.inputs[0])
    if layout is None or axes is None:
        return None
    listed = node.attributes.get_ints("axes") or fixed(node, 1)
    gone = {int(axis) % axes for axis in listed} if listed is not None else set()
    if not gone or layout.axis in gone:
        return None
    before = 0 if node.attributes.get_int("keepdims", 1) else sum(axis < layout.axis for axis in gone)
    return replace(layout, axis=layout.axis - before)


def transpose(channels: Channels, node: ir.Node) -> Layout | None:
    """The channels at another axis."""
    layout, axes = channels.of(node.inputs[0]), rank(node.inputs[0])
    if layout is None or axes is None:
        return None
    return replace(layout, axis=list(node.attributes.get_ints("perm", tuple(range(axes))[::-1])).index(layout.axis))


def squeeze(channels: Channels, node: ir.Node) -> Layout | None:
    """Fewer axes, the channels' among those that stay."""
    layout, axes, listed = channels.of(node.inputs[0]), rank(node.inputs[0]), fixed(node, 1)
    if layout is None or axes is None or listed is None:
        return None
    gone = {int(axis) % axes for axis in listed.ravel()}
    return None if layout.axis in gone else replace(layout, axis=layout.axis - sum(axis < layout.axis for axis in gone))


def unsqueeze(channels: Channels, node: ir.Node) -> Layout | None:
    """More axes of one element."""
    layout, axes, listed = channels.of(node.inputs[0]), rank(node.inputs[0]), fixed(node, 1)
    if layout is None or axes is None or listed is None:
        return None
    new = {int(axis) % (axes + listed.size) for axis in listed.ravel()}
    return replace(layout, axis=[axis for axis in range(axes + listed.size) if axis not in new][layout.axis])


def gather(channels: Channels, node: ir.Node) -> Layout | None:
    """Rows of a table, whose columns are channels, or elements of an axis that is not the channels'."""
    table, indices, layout = fixed(node, 0), rank(node.inputs[1]), channels.of(node.inputs[0])
    if channels.of(node.inputs[1]) is not None or indices is None:
        channels.freeze(node.inputs)
        return layout_nothing()
    if table is not None:
        if table.ndim != 2 or node.attributes.get_int("axis", 0) != 0:
            return layout_nothing()
        made = layout_of(Group(table.shape[1]), indices)
        channels.cut(node, 0, 1, made)
        return made
    axes = rank(node.inputs[0])
    if layout is None or axes is None:
        return layout_nothing()
    axis = node.attributes.get_int("axis", 0) % axes
    if axis == layout.axis:
        return None
    return replace(layout, axis=layout.axis + (indices - 1 if axis < layout.axis else 0))


def pad(channels: Channels, node: ir.Node) -> Layout | None:
    """Of other axes than the channels'."""
    layout, pads = channels.of(node.inputs[0]), fixed(node, 1)
    if layout is None or pads is None or len([value for value in node.inputs if value is not None]) > 3:
        return None
    edges = pads.reshape(2, -1)
    return layout if edges.shape[1] > layout.axis and not edges[:, layout.axis].any() else None


def resize(channels: Channels, node: ir.Node) -> Layout | None:
    """By scales that leave the channels."""
    layout, scales = channels.of(node.inputs[0]), fixed(node, 2)
    if layout is None or scales is None or scales.size <= layout.axis or scales[layout.axis] != 1:
        return None
    return layout


def depth_to_space(channels: Channels, node: ir.Node) -> Layout | None:
    """The channels of one block are tied; they come back as one."""
    layout, block = channels.of(node.inputs[0]), node.attributes.get_int("blocksize", 1)
    if layout is None or layout.axis != 1 or layout.size % block**2:
        return None
    entries = np.arange(layout.size)
    first = node.attributes.get_string("mode", "DCR") == "CRD"
    rows = entries.reshape(-1, block**2) if first else entries.reshape(block**2, -1).T
    return layout.picked(rows[:, 0]) if _tied(layout, rows) else None


def space_to_depth(channels: Channels, node: ir.Node) -> Layout | None:
    """Every channel comes once for each place of a block."""
    layout, block = channels.of(node.inputs[0]), node.attributes.get_int("blocksize", 1)
    if layout is None or layout.axis != 1:
        return None
    return layout.picked(np.tile(np.arange(layout.size), block**2))
