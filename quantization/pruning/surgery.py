"""Removing chosen channels from copies of a model, and making up for them where there is data.

What a product loses is made up for by its other inputs, in the least squares sense, and by its bias; then every layer,
from first to last, gets back the mean and variance that its outputs had.
Sources: channel selection with least squares reconstruction, arXiv:1707.06168; statistics restored after
pruning, arXiv:2011.01057.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.edit import add_constant, drop_unused
from convertkit.profile import OpRule, QuantProfile
from convertkit.quantization.graph.units import Unit, constant, find_units
from convertkit.quantization.pruning.channels import Channels, Cut
from convertkit.quantization.pruning.group import Group
from convertkit.quantization.pruning.rules import follow
from convertkit.quantization.pruning.scores import Activity, Order, Product, measure_activity, orders
from convertkit.quantization.search.influence import influence
from convertkit.quantization.weights.blas import one_thread
from convertkit.quantization.weights.patches import from_rows, has_rows, moments, weight_rows
from convertkit.quantization.weights.tune import affordable
from convertkit.stage import Feed

RESTORED_ON = 32
"""Samples on which means and variances are restored: every layer runs the model up to there again."""
_LEAST_COUNT = 256
"""A variance of fewer numbers is too uncertain to scale a layer by."""
_LARGEST_SCALE = 2.0
PRODUCTS = QuantProfile(
    "products", "int8", False,
    {op: OpRule({1: 0}, bias=2, data=(0,)) for op in ("Conv", "Gemm")} | {"MatMul": OpRule({1: -1}, data=(0,))},
)  # fmt: skip
_BIASED = ("Conv", "ConvTranspose", "Gemm")


@dataclass(frozen=True, slots=True)
class Removed:
    """A smaller model, and by the name of each value that got smaller its axis and the entries that stay."""

    model: ir.Model
    kept: Mapping[str, tuple[int, Array]]


class Surgeon:
    """The groups of one model, the order in which their channels go, and copies without some."""

    def __init__(self, model: ir.Model, feeds: Sequence[Feed], state: Mapping[str, Array], seed: int) -> None:
        self.model, self._feeds, self._state, self._seed = model, feeds, state, seed
        self.channels = follow(model.graph)
        self.groups = self.channels.prunable()
        self._active: dict[str, Activity] = {}
        self._known: dict[str, Product] = {}
        self._wanted: dict[str, Activity] = {}
        if feeds and self.groups:
            self._measure()

    def orders(self) -> tuple[Order, ...]:
        """How the units of each group go."""
        made = {str(value.name): value for node in self.model.graph for value in node.outputs}
        made |= {str(value.name): value for value in self.model.graph.inputs}
        known = {node: self._known[_name(node)] for node in self.model.graph if _name(node) in self._known}
        with one_thread():
            return orders(self.channels, self.groups, {made[n]: a for n, a in self._active.items()}, known)

    def without(self, keep: Sequence[Array], *, restore: bool = True) -> Removed:
        """A copy in which of each group these units stay; statistics are restored where that is wanted."""
        copy = self.model.clone()
        channels = follow(copy.graph)
        stays = dict(zip(channels.prunable(), keep, strict=True))
        if self._feeds:
            for cut in channels.sums():
                entries = cut.layout.kept(stays)
                if len(entries) < cut.layout.size:
                    self._make_up(copy.graph, cut, entries)
        kept = channels.kept(stays)
        channels.shrink(stays)
        for name, wanted in self._wanted.items() if restore and self._feeds else ():
            all_of_them = np.arange(len(wanted.mean))
            self._restore(copy, name, wanted, kept[name][1] if name in kept else all_of_them)
        drop_unused(copy.graph)
        return Removed(copy, kept)

    def _measure(self) -> None:
        model, sums = self.model, self.channels.sums()
        axes = {cut.read: cut.layout.axis for cut in sums if cut.read is not None and cut.read.name}
        made = {value: axis for value, axis in axes.items() if value.producer() is not None}
        self._active = _by_name(measure_activity(model, made, self._feeds, self._state))
        nodes = {cut.node for cut in sums}
        units = [unit for unit in find_units(model.graph, PRODUCTS) if unit.node in nodes and _is_whole(unit)]
        chosen = affordable(units)
        found = {}
        if chosen:
            found = moments(model, chosen, self._feeds, self._state, np.random.default_rng(self._seed))
        important = importance(model, chosen, self._some(), self._state, self._seed)
        self._known = {
            _name(unit.node): Product(unit, found[unit.name], important.get(_name(unit.node))) for unit in chosen
        }
        outputs = {node.outputs[0]: 1 for node in model.graph if _has_bias(node)}
        self._wanted = _by_name(measure_activity(model, outputs, self._some(), self._state))

    def _some(self) -> list[Feed]:
        return some(self._feeds)

    def _make_up(self, graph: ir.Graph, cut: Cut, stays: Array) -> None:
        known, active = self._known.get(_name(cut.node)), None
        if cut.read is not None:
            active = self._active.get(str(cut.read.name))
        if known is not None:
            _reconstruct(graph, cut.node, known, stays)
        elif cut.node.op_type in _BIASED and active is not None and cut.node.attributes.get_int("group", 1) == 1:
            _add_to_bias(graph, cut.node, _lost_mean(cut, stays, active.mean))

    def _restore(self, model: ir.Model, name: str, wanted: Activity, kept: Array) -> None:
        """Scale and shift a layer so that its outputs have the mean and variance that they had."""
        value = next(value for node in model.graph for value in node.outputs if value.name == name)
        node, graph = value.producer(), model.graph
        assert node is not None
        now = measure_activity(model, {value: 1}, self._some(), self._state)[value]
        ratio = (wanted.variance[kept] + 1e-12) / (now.variance + 1e-12)
        scale = np.clip(np.sqrt(ratio), 1 / _LARGEST_SCALE, _LARGEST_SCALE)
        if now.count < _LEAST_COUNT:
            scale = np.ones_like(scale)
        weight, bias = _value(node, 1), _value(node, 2)
        axis = 1 if node.op_type == "ConvTranspose" else 0
        factor = scale.reshape([-1 if place == axis else 1 for place in range(constant(weight).ndim)])
        shifted = (constant(bias) - now.mean) * scale + wanted.mean[kept]
        scaled = (constant(weight) * factor).astype(np.float32)
        node.replace_input_with(1, add_constant(graph, f"{weight.name}_restored", scaled))
        node.replace_input_with(2, add_constant(graph, f"{bias.name}_restored", shifted.astype(np.float32)))
        drop_unused(graph)


def some(feeds: Sequence[Feed]) -> list[Feed]:
    """A few samples, evenly spread."""
    return list(feeds[:: -(-len(feeds) // RESTORED_ON)])


def importance(
    model: ir.Model, units: Sequence[Unit], feeds: Sequence[Feed], state: Mapping[str, Array], seed: int
) -> dict[str, Array]:
    """What errors of each output of a product count, by its value's name: summed over positions, mean over samples."""
    names = [_name(unit.node) for unit in units]
    axes = {_name(unit.node): 1 if unit.node.op_type == "Conv" else -1 for unit in units}
    sums: dict[str, list[Array]] = {}
    for squares in influence(model, names, feeds, state, seed):
        for name, square in squares.items():
            rows = np.moveaxis(square, axes[name], 0)
            sums.setdefault(name, []).append(rows.reshape(len(rows), -1).sum(axis=1, dtype=np.float64))
    return {name: np.mean(each, axis=0) for name, each in sums.items()}


def explicit_biases(graph: ir.Graph) -> None:
    """A zero bias where a product has none: there is always one to correct."""
    for node in graph:
        weight = node.inputs[1] if node.op_type in _BIASED and not node.domain else None
        if weight is None or weight.const_value is None or (len(node.inputs) > 2 and node.inputs[2] is not None):
            continue
        shape, groups = constant(weight).shape, node.attributes.get_int("group", 1)
        rows_first = node.op_type == "Conv" or node.attributes.get_int("transB", 0) == 1
        size = shape[0] if rows_first else shape[1] * groups
        node.resize_inputs(3)
        node.replace_input_with(2, add_constant(graph, f"{weight.name}_no_bias", np.zeros(size, np.float32)))


def described(channels: Channels, group: Group, kept: Array) -> Mapping[str, object]:
    """For the report: the layers of a group, and how many channels it had and has."""
    members = [cut.node for cut in channels.cuts if any(each.root is group for each in cut.layout.groups)]
    names = list(dict.fromkeys(node.name or str(node.outputs[0].name) for node in members))
    after = int(np.isin(group.unit, kept).sum())
    return {"layers": names, "channels_before": group.size, "channels_after": after}


def _is_whole(unit: Unit) -> bool:
    return has_rows(unit) and len(weight_rows(unit)) == 1


def _has_bias(node: ir.Node) -> bool:
    """Whether a layer's outputs can be scaled and shifted: every one has a row of weights and a bias of its own."""
    if node.domain or node.op_type not in _BIASED or len(node.inputs) < 3:
        return False
    weight, bias = node.inputs[1], node.inputs[2]
    if weight is None or weight.const_value is None or bias is None or bias.const_value is None:
        return False
    rows = constant(weight).shape[1 if node.op_type == "ConvTranspose" else 0]
    straight = node.op_type != "Gemm" or node.attributes.get_int("transB", 0) == 1
    return straight and constant(bias).shape == (rows,)


def _reconstruct(graph: ir.Graph, node: ir.Node, product: Product, stays: Array) -> None:
    """The weights of the inputs that stay, and the bias, that come closest to the old output."""
    rows, taps, second = product.rows, product.taps, product.second
    kept = (stays[:, None] * taps + np.arange(taps)).ravel()
    gone = np.setdiff1d(np.arange(rows.shape[1]), kept)
    inner = product.damped(second[np.ix_(kept, kept)])
    changed = np.zeros_like(rows)
    changed[:, kept] = rows[:, kept] + np.linalg.solve(inner, second[np.ix_(kept, gone)] @ rows[:, gone].T).T
    if product.unit.bias is not None:
        holder = _same_place(graph, product.unit.bias[0])
        _add_to_bias(graph, holder, (rows - changed) @ product.moments.mean[0], product.unit.bias[1])
    index, value = product.unit.weight_or_fail
    weight = from_rows(product.unit, changed[None].astype(np.float32))
    node.replace_input_with(index, add_constant(graph, f"{value.name}_reconstructed", weight))


def _same_place(graph: ir.Graph, node: ir.Node) -> ir.Node:
    """The node of a copy."""
    return next(each for each in graph if _name(each) == _name(node))


def _lost_mean(cut: Cut, stays: Array, mean: Array) -> Array:
    """What the inputs that go give to every output on average; padding is not taken into account."""
    rows = np.moveaxis(constant(_value(cut.node, cut.index)).astype(np.float64), cut.axis, 0)
    summed = rows.reshape(*rows.shape[:2], -1).sum(axis=2)
    if cut.node.op_type == "ConvTranspose":  # an output sees one tap in stride × stride
        summed /= math.prod(cut.node.attributes.get_ints("strides", (1,)))
    gone = np.setdiff1d(np.arange(len(summed)), stays)
    return np.asarray(mean[gone] @ summed[gone])


def _add_to_bias(graph: ir.Graph, node: ir.Node, shift: Array, index: int = 2) -> None:
    old = _value(node, index)
    shifted = (constant(old) + shift).astype(np.float32)
    node.replace_input_with(index, add_constant(graph, f"{old.name}_shifted", shifted))


def _by_name(found: Mapping[ir.Value, Activity]) -> dict[str, Activity]:
    return {str(value.name): activity for value, activity in found.items()}


def _name(node: ir.Node) -> str:
    return str(node.outputs[0].name)


def _value(node: ir.Node, index: int) -> ir.Value:
    value = node.inputs[index]
    assert value is not None
    return value
