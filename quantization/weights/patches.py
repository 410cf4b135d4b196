"""What the weights of each unit are multiplied with, summed up on calibration data.

For a unit that computes ``y = W x`` (a convolution is that at every position), the error of changing
``W`` by ``D`` is ``E[|D x|²] = trace(D H Dᵀ)`` with ``H = E[x xᵀ]``.  ``H`` and ``E[x]`` are all that
rounding, error compensation and bias correction need to know of the data.  Where it is known how much the model's
outputs depend on ``y`` at each position, half of ``H`` counts positions by that: what is cut off behind the unit, or
is silence, need not be kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import repeat

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.quantization.graph.replay import open_session, run_all
from convertkit.quantization.graph.units import Unit, constant
from convertkit.stage import Feed

MOST_COLUMNS = 1200
"""A larger H costs more time than it gains."""
_LEAST_POSITIONS, _MOST_POSITIONS = 16, 1024
"""Positions of a convolution (rows of a matrix) that are taken from each feed."""
_AT_ONCE = 1024
_PER_COLUMN = 4
"""Samples of x per column of H: enough for its inverse to mean something."""


@dataclass(frozen=True, slots=True)
class Moments:
    """``second`` is H, shape (groups, columns, columns); ``mean`` is E[x], shape (groups, columns)."""

    second: Array
    mean: Array


def weight_rows(unit: Unit, array: Array | None = None) -> Array:
    """The unit's weight (or another array of its shape) as (groups, rows, columns): ``y = W x`` per group."""
    weight = constant(unit.weight_or_fail[1]) if array is None else array
    if unit.node.op_type == "MatMul":
        return weight.T[None]
    groups = unit.node.attributes.get_int("group", 1) if unit.node.op_type == "Conv" else 1
    return weight.reshape(groups, weight.shape[0] // groups, -1)


def from_rows(unit: Unit, rows: Array) -> Array:
    """The inverse of :func:`weight_rows`."""
    shape = constant(unit.weight_or_fail[1]).shape
    return np.ascontiguousarray(rows[0].T) if unit.node.op_type == "MatMul" else rows.reshape(shape)


def has_rows(unit: Unit) -> bool:
    """Whether the unit is a matrix product of moderate size."""
    return is_product(unit) and bool(weight_rows(unit).shape[-1] <= MOST_COLUMNS)


def is_product(unit: Unit) -> bool:
    """Whether the unit is a matrix product with a constant weight."""
    if unit.weight is None or unit.node.op_type not in ("Conv", "Gemm", "MatMul"):
        return False
    if unit.node.op_type == "Gemm" and unit.node.attributes.get_int("transA") == 1:
        return False
    weight = constant(unit.weight[1])
    return weight.ndim <= 4 and unit.node.attributes.get_string("auto_pad", "NOTSET") in ("NOTSET", "VALID")


def moments(
    model: ir.Model,
    units: Sequence[Unit],
    feeds: Iterable[Feed],
    state: Mapping[str, Array],
    rng: np.random.Generator,
    influences: Iterable[Mapping[str, Array]] | None = None,
) -> dict[str, Moments]:
    """Moments of the inputs of ``units`` in the float model, by the units' names.

    ``influences``: squared gradients of each feed, by the names of the units' outputs, where they are known.
    """
    copy = model.clone()
    known = {str(value.name): value for node in copy.graph for value in node.outputs}
    names = list(dict.fromkeys(str(unit.data[0].name) for unit in units))
    inputs = {str(value.name) for value in copy.graph.inputs}
    copy.graph.outputs.extend(known[name] for name in names if name in known and not known[name].is_graph_output())
    session = open_session(copy)
    sums: dict[str, _Sums] = {}
    kept = list(feeds)
    share = {unit.name: positions(weight_rows(unit).shape[-1], len(kept)) for unit in units}
    answers = run_all(session, [name for name in names if name not in inputs], kept, state)
    for feed, answer, squares in zip(kept, answers, repeat({}) if influences is None else influences, strict=False):
        seen = {**feed, **answer}
        for unit in units:
            square, same = squares.get(str(unit.node.outputs[0].name)), deepcopy(rng)
            columns = columns_of(unit, seen[str(unit.data[0].name)], share[unit.name], rng)
            weights = None if square is None else _weights(unit, square, share[unit.name], same)
            sums.setdefault(unit.name, _Sums()).add(columns, weights)
    return {name: each.finished() for name, each in sums.items()}


class _Sums:
    """Sums of columns and of their products; products are made of many columns at once."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Array, Array | None]] = []
        self._second: Array = np.zeros(())
        self._weighed: Array = np.zeros(())
        self._mean: Array = np.zeros(())
        self._count, self._weight = 0, 0.0

    def add(self, columns: Array, weights: Array | None) -> None:
        """Columns, (groups, positions, columns), and what each position counts; all of one unit or none."""
        self._waiting.append((columns, weights))
        if sum(each.shape[1] for each, _ in self._waiting) >= _AT_ONCE:
            self._flush()

    def finished(self) -> Moments:
        self._flush()
        second, mean = self._second / self._count, self._mean / self._count
        return Moments((second + self._weighed / self._weight) / 2 if self._weight else second, mean)

    def _flush(self) -> None:
        if not self._waiting:
            return
        columns = np.concatenate([each for each, _ in self._waiting], axis=1)
        self._second = self._second + np.matmul(columns.transpose(0, 2, 1), columns)
        self._mean = self._mean + columns.sum(axis=1)
        self._count += columns.shape[1]
        given = [weights for _, weights in self._waiting if weights is not None]
        if given:
            weights = np.concatenate(given)
            # Gradients may be of any size: in double precision their squares do not vanish.
            weighed = (columns * np.sqrt(weights)[:, None]).astype(np.float64)
            self._weighed = self._weighed + np.matmul(weighed.transpose(0, 2, 1), weighed)
            self._weight += float(weights.sum())
        self._waiting.clear()


def positions(columns: int, feeds: int) -> int:
    """How many inputs of a product are taken from each of ``feeds``."""
    return int(np.clip(-(-_PER_COLUMN * columns // feeds), _LEAST_POSITIONS, _MOST_POSITIONS))


def _weights(unit: Unit, square: Array, share: int, rng: np.random.Generator) -> Array:
    """What each position counts, (positions,), float64, at the same places as the columns of the same ``rng``."""
    last = np.moveaxis(square, 1, -1) if unit.node.op_type == "Conv" else square
    each = last.reshape(-1, last.shape[-1]).mean(axis=1, dtype=np.float64)
    return np.asarray(each[_some(len(each), share, rng)])


def columns_of(unit: Unit, value: Array, share: int, rng: np.random.Generator) -> Array:
    """At most ``share`` inputs of the matrix product, (groups, positions, columns), float32."""
    if unit.node.op_type != "Conv":
        rows = value.reshape(-1, value.shape[-1])
        return rows[_some(len(rows), share, rng)][None]
    weight = constant(unit.weight_or_fail[1])
    kernel, rank = weight.shape[2:], weight.ndim - 2
    attributes = unit.node.attributes
    strides = attributes.get_ints("strides", (1,) * rank)
    dilations = attributes.get_ints("dilations", (1,) * rank)
    pads = attributes.get_ints("pads", (0,) * (2 * rank))
    groups = attributes.get_int("group", 1)
    padded = np.pad(value, ((0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)))
    sizes = [(padded.shape[2 + axis] - (kernel[axis] - 1) * dilations[axis] - 1) // strides[axis] + 1
             for axis in range(rank)]  # fmt: skip
    total = value.shape[0] * int(np.prod(sizes))
    where = np.unravel_index(_some(total, share, rng), (value.shape[0], *sizes))
    taps = np.indices(kernel).reshape(rank, -1)
    places = [where[1 + axis][:, None] * strides[axis] + taps[axis] * dilations[axis] for axis in range(rank)]
    # (positions, taps, channels) → (groups, positions, channels of the group × taps), the weight's own order
    picked = np.moveaxis(padded, 1, -1)[(where[0][:, None], *places)]
    split = picked.reshape(*picked.shape[:2], groups, -1)
    return np.ascontiguousarray(split.transpose(2, 0, 3, 1)).reshape(groups, picked.shape[0], -1)


def _some(total: int, share: int, rng: np.random.Generator) -> Array:
    return np.arange(total) if total <= share else rng.choice(total, share, replace=False)
