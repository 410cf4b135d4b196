"""What each channel is worth, measured on calibration data, and which ones are worth least."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from convertkit.artifact import Array
from convertkit.quantization.graph.replay import open_session, run_all
from convertkit.quantization.graph.units import Unit, constant
from convertkit.quantization.pruning.channels import Channels, Cut, Group
from convertkit.quantization.weights.patches import Moments, weight_rows
from convertkit.stage import Feed

_ALIGNED = 4
"""Kernels work on this many channels at a time …"""
_ALIGN_FROM = 16
"""… and a group of fewer channels is too coarse to be rounded to that."""
_MOST_OF_A_GROUP = 2.0
"""A group may lose this many times its share, where others lose less."""
_DAMPING = 0.01


@dataclass(frozen=True, slots=True)
class Activity:
    """Mean and variance of every entry along the channel axis of a value, over ``count`` numbers each."""

    mean: Array
    variance: Array
    count: int


@dataclass(frozen=True, slots=True)
class Product:
    """A matrix product with the moments of its inputs."""

    unit: Unit
    moments: Moments

    @property
    def rows(self) -> Array:
        """The weight as (outputs, columns), float64."""
        return np.asarray(weight_rows(self.unit)[0], np.float64)

    @property
    def taps(self) -> int:
        """Columns of one input channel."""
        size: int = constant(self.unit.weight_or_fail[1]).shape[0 if self.unit.node.op_type == "MatMul" else 1]
        return int(weight_rows(self.unit).shape[2]) // size

    @property
    def second(self) -> Array:
        """Covariance of the columns where a bias can make up for the mean, else their second moment."""
        second, mean = self.moments.second[0].astype(np.float64), self.moments.mean[0].astype(np.float64)
        return np.asarray(second if self.unit.bias is None else second - np.outer(mean, mean))


def measure_activity(
    model: ir.Model, axes: Mapping[ir.Value, int], feeds: Iterable[Feed], state: Mapping[str, Array]
) -> Mapping[ir.Value, Activity]:
    """Mean and variance along an axis of each value, over all feeds.  ``model`` is not changed."""
    copy = model.clone()
    made = {str(value.name): value for node in copy.graph for value in node.outputs}
    names = {str(value.name): value for value in axes}
    if not state:  # what lies behind the values need not be computed
        copy.graph.outputs.clear()
    copy.graph.outputs.extend(made[name] for name in names if not made[name].is_graph_output())
    RemoveUnusedNodesPass()(copy)
    sums: dict[str, list[Array]] = {name: [] for name in names}
    counts = dict.fromkeys(names, 0)
    for answer in run_all(open_session(copy), list(names), feeds, state):
        for name, value in names.items():
            rows = np.moveaxis(answer[name], axes[value], 0)
            rows = rows.reshape(len(rows), -1).astype(np.float64)
            sums[name].append(np.stack([rows.mean(axis=1), np.square(rows).mean(axis=1)]))
            counts[name] += rows.shape[1]
    found = {}
    for name, value in names.items():
        mean, square = np.mean(sums[name], axis=0)
        found[value] = Activity(mean, np.maximum(square - mean**2, 0.0), counts[name])
    return found


def scores(
    channels: Channels, groups: Sequence[Group], active: Mapping[ir.Value, Activity], known: Mapping[ir.Node, Product]
) -> Mapping[Group, Array]:
    """The share of their readers' output power that is lost with each channel."""
    found = {group: np.zeros(group.size) for group in groups}
    for cut in channels.sums():
        part = _reconstructed_loss(known[cut.node]) if cut.node in known else _plain_loss(cut, active)
        start = 0
        for group, repeat in zip(cut.layout.groups, cut.layout.repeats, strict=True):
            entries = part[start : start + group.size * repeat]
            start += group.size * repeat
            if group.root in found:
                found[group.root] += entries.reshape(group.size, repeat).sum(axis=1)
    return found


def _reconstructed_loss(product: Product) -> Array:
    """What is lost although the other inputs make up for it as well as they can.

    Source: the saliency of optimal brain surgery, for blocks: ``W_c ([H⁻¹]_cc)⁻¹ W_cᵀ``.
    """
    rows, second, taps = product.rows, product.second, product.taps
    power = float(np.sum((rows @ second) * rows))
    second = second + np.eye(len(second)) * max(_DAMPING * float(np.diagonal(second).mean()), 1e-12)
    inverse, size = np.linalg.inv(second), len(second) // taps
    blocks = inverse.reshape(size, taps, size, taps)[np.arange(size), :, np.arange(size), :]
    columns = rows.reshape(len(rows), size, taps)
    return np.asarray(np.einsum("oct,ctu,ocu->c", columns, np.linalg.inv(blocks), columns) / max(power, 1e-30))


def _plain_loss(cut: Cut, active: Mapping[ir.Value, Activity]) -> Array:
    """Weight norm times the variance of the activation, where it was measured."""
    weight, value = cut.node.inputs[cut.index], cut.node.inputs[0]
    assert weight is not None
    assert value is not None
    array = constant(weight).astype(np.float64)
    part = np.square(array).sum(axis=tuple(axis for axis in range(array.ndim) if axis != cut.axis))
    if value in active:
        part = part * active[value].variance
    return np.asarray(part / max(float(part.sum()), 1e-30))


def strongest(found: Mapping[Group, Array], share: float) -> Mapping[Group, Array]:
    """The channels that stay, in order: of all channels together, ``share`` go, those with the least scores."""
    total = sum(len(score) for score in found.values())
    low, high = 0.0, max(float(score.max()) for score in found.values())
    for _ in range(60):
        middle = (low + high) / 2
        gone = total - sum(_count(score, middle, share) for score in found.values())
        low, high = (low, middle) if gone > round(total * share) else (middle, high)
    return {
        group: np.sort(np.argsort(-score, kind="stable")[: _count(score, low, share)]) for group, score in found.items()
    }


def _count(score: Array, threshold: float, share: float) -> int:
    """How many channels of a group stay where those up to ``threshold`` go."""
    count = int((score > threshold).sum())
    if len(score) >= _ALIGN_FROM:
        count = -(-count // _ALIGNED) * _ALIGNED
    least = max(1, int(len(score) * (1 - min(_MOST_OF_A_GROUP * share, 0.9))))
    return min(max(count, least), len(score))
