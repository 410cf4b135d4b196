"""Channels in another order, in which N of M neighbours hold more of what counts; the model computes the same.

N of M neighbours stay of every weight, and who is whose neighbour is the order in which a layer's channels are made.
Channels that go together (:mod:`convertkit.quantization.pruning.channels`) change places everywhere at once: in the
weights that make them, in what is done with them element by element, and in the weights that sum over them.
Source of the idea: channel permutations for N:M sparsity, Pool and Yu, NeurIPS 2021.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.edit import add_constant, drop_unused
from convertkit.quantization.graph.reordered import mark_reordered
from convertkit.quantization.graph.units import constant
from convertkit.quantization.pruning.channels import Channels, Layout
from convertkit.quantization.pruning.group import Group
from convertkit.quantization.pruning.patterns import Pattern
from convertkit.quantization.pruning.products import Product
from convertkit.quantization.pruning.rules import follow

_SUFFIX = "_reordered"
_WORK = 5e7
"""Sums that gains of all exchanges of one group may cost at first; of more rows than that allows every n-th counts."""
_LEAST_GAIN = 1e-6
"""The share of what counts that an exchange has to gain."""


Orders = Mapping[int, Array]
"""By the place of a group in :func:`movable`: place ``i`` among its channels gets channel ``order[i]``."""


def better_orders(model: ir.Model, wanted: Pattern, scores: Mapping[Product, Array]) -> Orders:
    """The orders of groups in which ``wanted`` keeps more of ``scores``; groups that gain nothing are not there.

    ``scores`` are (parts, rows, columns) of products of ``model``, zero or more each.
    """
    channels = follow(model.graph)
    known = {(each.node, each.index): _by_channel(each, array) for each, array in scores.items() if _fits(each, wanted)}
    found = {}
    for place, group in enumerate(movable(channels)):
        rows = [
            known[cut.node, cut.index][:, start : start + group.size]
            for cut in channels.sums()
            if (cut.node, cut.index) in known and (start := _side_by_side(cut.layout, group, wanted)) is not None
        ]
        if rows and not group.size % wanted.of:
            order = exchanged(np.concatenate(rows), wanted)
            if order is not None:
                found[place] = order
    return found


def movable(channels: Channels) -> tuple[Group, ...]:
    """Groups whose channels may change places one by one: none is tied to another, and all come equally often."""
    layouts = [*(cut.layout for cut in channels.cuts), *channels.layouts.values()]
    return tuple(
        group
        for group in channels.prunable()
        if group.units == group.size and all(_places(layout, group) is not None for layout in layouts)
    )


def reordered(model: ir.Model, orders: Orders) -> ir.Model:
    """A copy whose channels are in these orders; what holds other channels than before has another name."""
    copy = model.clone()
    channels = follow(copy.graph)
    groups = movable(channels)
    moved = {groups[place]: order for place, order in orders.items()}
    for cut in channels.cuts:
        entries = _moved(cut.layout, moved)
        value = cut.node.inputs[cut.index]
        assert value is not None
        if not np.array_equal(entries, np.arange(cut.layout.size)):
            array = np.ascontiguousarray(np.take(constant(value), entries, cut.axis))
            cut.node.replace_input_with(cut.index, add_constant(copy.graph, f"{value.name}{_SUFFIX}", array))
            cut.node.name = f"{str(cut.node.name).removesuffix(_SUFFIX)}{_SUFFIX}"
    for value, layout in channels.layouts.items():
        entries = _moved(layout, moved)
        if not np.array_equal(entries, np.arange(layout.size)):
            mark_reordered(value, f"{value.name}{_SUFFIX}", layout.axis, entries.tolist())
    drop_unused(copy.graph)
    return copy


def exchanged(scores: Array, wanted: Pattern) -> Array | None:
    """The order of channels that pairs of exchanges lead to; None where none gains.

    ``scores`` are (rows, channels); of every ``wanted.of`` neighbours the ``wanted.keep`` largest of each row count.
    Each time the best exchange of all is made, so that the same scores give the same order.
    """
    step = max(1, int(np.ceil(scores.shape[0] * scores.shape[1] ** 2 / _WORK)))
    held = np.array(scores[::step], np.float64)
    count = held.shape[1]
    order, stripe = np.arange(count), np.arange(count) // wanted.of
    least = _LEAST_GAIN * float(held.sum())
    table = np.stack([_with(held, place, wanted) for place in range(count)])
    for _ in range(count):
        own = np.diagonal(table)
        # Of what stands at i and j: i's stripe with j's channel, and the other way round.
        gains = table + table.T - own[:, None] - own[None, :]
        gains[stripe[:, None] == stripe[None, :]] = 0.0
        one, other = np.unravel_index(int(gains.argmax()), gains.shape)
        if gains[one, other] <= least:
            break
        order[[one, other]] = order[[other, one]]
        held[:, [one, other]] = held[:, [other, one]]
        table[:, [one, other]] = table[:, [other, one]]
        for place in np.flatnonzero(np.isin(stripe, stripe[[one, other]])):
            table[place] = _with(held, int(place), wanted)
    return None if np.array_equal(order, np.arange(count)) else order


def _with(held: Array, place: int, wanted: Pattern) -> Array:
    """What a stripe keeps with each channel in turn at ``place``: its own one there is what it keeps now."""
    first = place // wanted.of * wanted.of
    others = [each for each in range(first, first + wanted.of) if each != place]
    rest = np.sort(held[:, others], axis=1)[:, ::-1]
    sure, last = rest[:, : wanted.keep - 1].sum(), rest[:, wanted.keep - 1]
    return np.asarray(sure + np.maximum(last[:, None], held).sum(axis=0))


def _fits(product: Product, wanted: Pattern) -> bool:
    """Whether neighbours are channels of all groups of the product, which is to say of the one that there is."""
    parts, _, columns = product.rows.shape
    return bool(parts == product.blocks and columns % (product.taps * wanted.of) == 0)


def _by_channel(product: Product, scores: Array) -> Array:
    """(rows at every tap, channels)."""
    parts, rows, columns = scores.shape
    apart = scores.reshape(parts, rows, columns // product.taps, product.taps).transpose(1, 3, 0, 2)
    return np.asarray(apart.reshape(rows * product.taps, -1))


def _side_by_side(layout: Layout, group: Group, wanted: Pattern) -> int | None:
    """Where the group's channels begin, if they lie there in order, whole stripes of them; else None."""
    places = _places(layout, group)
    if places is None or places.shape != (group.units, 1):
        return None
    start = int(places[0, 0])
    in_order = np.array_equal(places[:, 0], start + np.arange(group.units))
    return start if in_order and start % wanted.of == 0 and layout.size % wanted.of == 0 else None


def _places(layout: Layout, group: Group) -> Array | None:
    """Where each channel of a group is among the entries, (channels, times); None where some come more often."""
    channel = np.full(layout.size, -1)
    for place, each in enumerate(layout.groups):
        if each.root is group:
            mine = layout.owner == place
            channel[mine] = layout.units(place)[mine]
    entries = np.flatnonzero(channel >= 0)
    times = np.bincount(channel[entries], minlength=group.units)
    if len(set(times.tolist())) > 1:
        return None
    return np.asarray(entries[np.argsort(channel[entries], kind="stable")].reshape(group.units, -1))


def _moved(layout: Layout, orders: Mapping[Group, Array]) -> Array:
    """Which entry comes to each place."""
    entries = np.arange(layout.size)
    for group in dict.fromkeys(each.root for each in layout.groups):
        if group in orders:
            places = _places(layout, group)
            assert places is not None
            entries[places] = places[orders[group]]
    return entries
