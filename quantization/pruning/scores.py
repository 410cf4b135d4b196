"""In which order the channels of a group go, and what the model's outputs lose with each number of them.

The units of a group go one after the other: always the one whose loss all others can make up for best, by the moments
of what is read.  Errors of a layer's outputs count by how much the model's outputs depend on them, where that is known.
Source of the loss and of the update: optimal brain surgery with blocks of weights, arXiv:2203.07259.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from convertkit.artifact import Array
from convertkit.quantization.graph.replay import open_session, run_all
from convertkit.quantization.graph.units import Unit, constant
from convertkit.quantization.pruning.channels import Channels, Cut
from convertkit.quantization.pruning.group import Group
from convertkit.quantization.weights.patches import Moments, weight_rows
from convertkit.stage import Feed

DAMPING = 0.01


@dataclass(frozen=True, slots=True)
class Activity:
    """Mean and variance of every entry along the channel axis of a value, over ``count`` numbers each."""

    mean: Array
    variance: Array
    count: int


@dataclass(frozen=True, slots=True)
class Product:
    """A matrix product with the moments of its inputs, and what errors of each of its outputs count."""

    unit: Unit
    moments: Moments
    importance: Array | None = None

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

    def damped(self, second: Array) -> Array:
        """``second`` with a share of its mean power added to each."""
        return np.asarray(second + np.eye(len(second)) * max(DAMPING * float(np.diagonal(second).mean()), 1e-12))

    def weighed(self) -> Array:
        """Rows whose errors, squared and summed, are the share of the outputs' power that is lost."""
        rows = self.rows
        if self.importance is None:
            return np.asarray(rows / np.sqrt(max(float(np.sum((rows @ self.second) * rows)), 1e-30)))
        return np.asarray(rows * np.sqrt(self.importance)[:, None])


@dataclass(frozen=True, slots=True)
class Order:
    """The units of a group, those first that go first, and the ``loss`` with none, one, two … gone, all but one."""

    units: Array
    loss: Array

    def kept(self, count: int) -> Array:
        """The units that stay where ``count`` do, in order."""
        return np.sort(self.units[len(self.units) - count :])


def measure_activity(
    model: ir.Model, axes: Mapping[ir.Value, int], feeds: Iterable[Feed], state: Mapping[str, Array]
) -> Mapping[ir.Value, Activity]:
    """Mean and variance along an axis of each value, over all feeds.  ``model`` is not changed."""
    if not axes:
        return {}
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


def orders(
    channels: Channels, groups: Sequence[Group], active: Mapping[ir.Value, Activity], known: Mapping[ir.Node, Product]
) -> tuple[Order, ...]:
    """How the units of each group go; without data by the weights alone."""
    return tuple(_order(channels, group, active, known) for group in groups)


def _order(
    channels: Channels, group: Group, active: Mapping[ir.Value, Activity], known: Mapping[ir.Node, Product]
) -> Order:
    readers, plain = [], np.zeros(group.units)
    for cut in channels.sums():
        places = [place for place, each in enumerate(cut.layout.groups) if each.root is group]
        if places and cut.node in known:
            readers.append(_Reader(known[cut.node], cut, places, group.units))
        elif places:
            lost = _plain_loss(cut, active)
            for place in places:
                mine = cut.layout.owner == place
                plain += np.bincount(cut.layout.units(place)[mine], lost[mine], group.units)
    gone: list[int] = []
    loss = [0.0]
    left = np.ones(group.units, bool)
    while len(gone) < group.units - 1:
        each = plain + sum(reader.losses() for reader in readers)
        worst = int(np.argmin(np.where(left, each, np.inf)))
        loss.append(loss[-1] + max(float(each[worst]), 0.0))
        gone.append(worst)
        left[worst] = False
        for reader in readers:
            reader.remove(worst)
    return Order(np.array([*gone, int(np.argmax(left))]), np.array(loss))


class _Reader:
    """A product that sums over a group's units, as it is with some of them gone and made up for."""

    def __init__(self, product: Product, cut: Cut, places: Sequence[int], units: int) -> None:
        self._rows = product.weighed()
        self._inverse = np.linalg.inv(product.damped(product.second))
        entries: list[list[int]] = [[] for _ in range(units)]
        for place in places:
            for entry in np.flatnonzero(cut.layout.owner == place):
                entries[int(cut.layout.units(place)[entry])].append(int(entry))
        taps = np.arange(product.taps)
        width = max(map(len, entries))
        self._even = all(len(each) == width for each in entries)
        self._columns = [(np.array(each, int)[:, None] * product.taps + taps).ravel() for each in entries]

    def losses(self) -> Array:
        """What each unit costs next, although the others make up for it as well as they can."""
        if self._even:
            columns = np.stack(self._columns)
            blocks = self._inverse[columns[:, :, None], columns[:, None, :]]
            weights = self._rows[:, columns].transpose(1, 0, 2)
            return np.asarray((weights * np.matmul(weights, _inverses(blocks))).sum(axis=(1, 2)))
        return np.array([self._loss(columns) for columns in self._columns])

    def _loss(self, columns: Array) -> float:
        weights = self._rows[:, columns]
        return float(np.sum((weights @ _inverses(self._inverse[np.ix_(columns, columns)])) * weights))

    def remove(self, unit: int) -> None:
        """Take the unit out; the weights of the others make up for it."""
        columns = self._columns[unit]
        wide = _inverses(self._inverse[np.ix_(columns, columns)]) @ self._inverse[columns]
        self._rows = self._rows - self._rows[:, columns] @ wide
        self._inverse = self._inverse - self._inverse[:, columns] @ wide
        self._rows[:, columns] = 0
        self._inverse[columns], self._inverse[:, columns] = 0, 0


def _inverses(blocks: Array) -> Array:
    """Of symmetric blocks; zero ones, of what is gone, stay zero."""
    size = blocks.shape[-1]
    empty = ~np.asarray(blocks.any(axis=(-2, -1)))[..., None, None]
    return np.asarray(np.where(empty, 0.0, np.linalg.inv(blocks + empty * np.eye(size))))


def _plain_loss(cut: Cut, active: Mapping[ir.Value, Activity]) -> Array:
    """Weight norm times the variance of the activation, where it was measured, as a share of all."""
    weight, value = cut.node.inputs[cut.index], cut.read
    assert weight is not None
    assert value is not None
    array = constant(weight).astype(np.float64)
    part = np.square(array).sum(axis=tuple(axis for axis in range(array.ndim) if axis != cut.axis))
    if value in active and len(active[value].variance) == len(part):
        part = part * active[value].variance
    return np.asarray(part / max(float(part.sum()), 1e-30))
