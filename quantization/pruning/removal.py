"""Removing whole channels: a smaller, faster model of the same form, without training.

Those channels go that carry least, over all groups together.  What a product loses is made up for by its
other inputs, in the least squares sense, and by its bias; then every layer, from first to last, gets back
the mean and variance that its outputs had.
Sources: channel selection with least squares reconstruction, arXiv:1707.06168; statistics restored after
pruning, arXiv:2011.01057.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array, Artifact
from convertkit.errors import Unsupported
from convertkit.onnx.edit import add_constant, drop_unused
from convertkit.onnx.load import load_model
from convertkit.onnx.save import save_model
from convertkit.profile import OpRule, QuantProfile
from convertkit.quantization.graph.step import LossyStep
from convertkit.quantization.graph.units import constant, find_units
from convertkit.quantization.prepare.prepare import prepare
from convertkit.quantization.pruning.channels import Channels, Cut, Group
from convertkit.quantization.pruning.rules import follow
from convertkit.quantization.pruning.scores import Activity, Product, measure_activity, scores, strongest
from convertkit.quantization.weights.patches import from_rows, has_rows, moments
from convertkit.quantization.weights.tune import affordable
from convertkit.stage import Feed, FeedSource, Stage
from convertkit.state import initial_state

_DAMPING = 0.01
_RESTORED_ON = 32
"""Samples on which means and variances are restored: every layer runs the model up to there again."""
_LEAST_COUNT = 256
"""A variance of fewer numbers is too uncertain to scale a layer by."""
_LARGEST_SCALE = 2.0
_PRODUCTS = QuantProfile(
    "products", "int8", False,
    {op: OpRule({1: 0}, bias=2, data=(0,)) for op in ("Conv", "Gemm")} | {"MatMul": OpRule({1: -1}, data=(0,))},
)  # fmt: skip
_BIASED = ("Conv", "ConvTranspose", "Gemm")


@dataclass(slots=True)
class PruneChannels(LossyStep):
    """Removes ``share`` of all channels that can go."""

    share: float
    calibration: FeedSource | None = None
    seed: int = 0

    name = "prune-channels"

    @property
    def options(self) -> Mapping[str, object]:
        return {"prune_channels": self.share, "calibrated": self.calibration is not None}

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        """Write the smaller model; ``diagnosis`` tells how many channels every layer had and has."""
        model = load_model(source.path)
        prepare(model)
        explicit_biases(model.graph)
        channels = follow(model.graph)
        groups = channels.prunable()
        if not groups:
            raise Unsupported("--prune-channels finds no channel that could go: something looks at all of them")
        worker = _Surgeon(model, channels, self.calibration, initial_state(source), self.seed)
        self.progress.status("measuring channels")
        found = scores(channels, groups, worker.active, worker.known)
        keep = strongest(found, self.share)
        if all(len(kept) == group.size for group, kept in keep.items()):
            raise Unsupported(f"--prune-channels {self.share} removes no whole channel of layers as narrow as these")
        self.diagnosis = {"groups": [_described(channels, group, kept) for group, kept in keep.items()]}
        self.progress.status("removing channels")
        worker.remove(keep)
        drop_unused(model.graph)
        return save_model(model, workdir / "pruned.onnx", f"{self.name} {self.version}", source.initial_state)


class _Surgeon:
    """Removes channels from one model, and makes up for them where there is data."""

    def __init__(
        self, model: ir.Model, channels: Channels, feeds: FeedSource | None, state: Mapping[str, Array], seed: int
    ) -> None:
        self._model, self._channels, self._feeds, self._state = model, channels, feeds, state
        self.active: Mapping[ir.Value, Activity] = {}
        self.known: Mapping[ir.Node, Product] = {}
        self._wanted: Mapping[ir.Value, Activity] = {}
        if feeds is None:
            return
        axes = {_value(cut.node, 0): cut.layout.axis for cut in channels.sums()}
        self.active = measure_activity(model, axes, feeds, state)
        nodes = {cut.node for cut in channels.sums()}
        units = [unit for unit in find_units(model.graph, _PRODUCTS) if unit.node in nodes and has_rows(unit)]
        chosen = affordable(units)
        found = moments(model, chosen, feeds, state, np.random.default_rng(seed)) if chosen else {}
        self.known = {unit.node: Product(unit, found[unit.name]) for unit in chosen}
        outputs = {node.outputs[0]: 1 for node in model.graph if _has_bias(node)}
        self._wanted = measure_activity(model, outputs, self._some(), state)

    def remove(self, keep: Mapping[Group, Array]) -> None:
        """Shrink the model in place."""
        if self._feeds is not None:
            for cut in self._channels.sums():
                stays = cut.layout.kept(keep)
                if len(stays) < cut.layout.size:
                    self._make_up(cut, stays)
        self._channels.shrink(keep)
        for value, wanted in self._wanted.items():
            layout = self._channels.of(value)
            self._restore(value, wanted, np.arange(len(wanted.mean)) if layout is None else layout.kept(keep))

    def _some(self) -> list[Feed]:
        if self._feeds is None:
            return []
        return list(islice(self._feeds, 0, None, -(-len(self._feeds) // _RESTORED_ON)))

    def _make_up(self, cut: Cut, stays: Array) -> None:
        graph, active = self._model.graph, self.active.get(_value(cut.node, 0))
        if cut.node in self.known:
            _reconstruct(graph, self.known[cut.node], stays)
        elif cut.node.op_type in _BIASED and active is not None:
            _add_to_bias(graph, cut.node, _lost_mean(cut, stays, active.mean))

    def _restore(self, value: ir.Value, wanted: Activity, kept: Array) -> None:
        """Scale and shift a layer so that its outputs have the mean and variance that they had."""
        node, graph = value.producer(), self._model.graph
        assert node is not None
        now = measure_activity(self._model, {value: 1}, self._some(), self._state)[value]
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


def _reconstruct(graph: ir.Graph, product: Product, stays: Array) -> None:
    """The weights of the inputs that stay, and the bias, that come closest to the old output."""
    rows, taps, second, unit = product.rows, product.taps, product.second, product.unit
    index, value = unit.weight_or_fail
    kept = (stays[:, None] * taps + np.arange(taps)).ravel()
    gone = np.setdiff1d(np.arange(rows.shape[1]), kept)
    inner = second[np.ix_(kept, kept)]
    inner += np.eye(len(kept)) * max(_DAMPING * float(np.diagonal(inner).mean()), 1e-12)
    changed = np.zeros_like(rows)
    changed[:, kept] = rows[:, kept] + np.linalg.solve(inner, second[np.ix_(kept, gone)] @ rows[:, gone].T).T
    if unit.bias is not None:
        node, place = unit.bias
        _add_to_bias(graph, node, (rows - changed) @ product.moments.mean[0], place)
    weight = from_rows(unit, changed[None].astype(np.float32))
    unit.node.replace_input_with(index, add_constant(graph, f"{value.name}_reconstructed", weight))


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


def _described(channels: Channels, group: Group, kept: Array) -> Mapping[str, object]:
    members = [cut.node for cut in channels.cuts if any(each.root is group for each in cut.layout.groups)]
    names = list(dict.fromkeys(node.name or str(node.outputs[0].name) for node in members))
    return {"layers": names, "channels_before": group.size, "channels_after": len(kept)}


def _value(node: ir.Node, index: int) -> ir.Value:
    value = node.inputs[index]
    assert value is not None
    return value


_: type[Stage] = PruneChannels
