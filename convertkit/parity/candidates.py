"""Rows of a detector where its candidates tie: which of them it delivers is up to roundings, what they hold is not.

On a black image all places of a detector score the same, and single roundings decide which of them are among the best,
and which suppress the others.  The float64 twin chooses many times, with tied candidates in other orders
(``convertkit/onnx/twin/choices.py``).  A result is right where

- each of its rows, over all outputs together, is one that the twin delivers, as often as the twin does,
- it has all rows that the twin delivers in every order, which are not up to ties, and about as many others, and
- the best stay first: what falls down the rows in every order, as scores do, falls here.  Where nothing does, a row
  stands elsewhere than in the twin's own order only where orders differ.

A row may be delivered only if others are that it depends on.  So where rows are left over the twin is asked for the
candidates of the other rows.  Which candidate makes which row is told by the runs in which both are there.

Both results are held against that, the source's too, as a twin of another model excuses nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from convertkit.artifact import Array
from convertkit.parity.rows import Orders
from convertkit.parity.truth import ROUNDINGS, TYPICAL, Ties

_DRAWN = 8
"""Runs that prefer one half of the candidates, drawn at random: so no two candidates are chosen in the same runs."""
_REQUESTS = 4
"""So often the candidates of given rows are asked for; each time it is clearer which those are."""
_SEED = 0x71E5


@dataclass(frozen=True, slots=True)
class _Table:
    """Outputs whose leading axes, ``leading`` many, are the same: lanes of rows."""

    names: tuple[str, ...]
    leading: int

    def rows(self, outputs: Mapping[str, Array]) -> Array | None:
        """(lanes, rows, numbers) as float64; None where the outputs do not fit together."""
        values = [np.atleast_1d(outputs[name]) for name in self.names]
        shapes = {value.shape[: self.leading] for value in values}
        shape = shapes.pop()
        if shapes or len(shape) != self.leading:
            return None
        flat = (int(np.prod(shape[:-1])), shape[-1])
        return np.concatenate([_flat(value, flat).astype(np.float64) for value in values], -1)

    def columns(self, outputs: Mapping[str, Array], by_output: Mapping[str, float]) -> Array:
        """A number of each output for each column of its rows."""
        sizes = [int(np.prod(np.atleast_1d(outputs[name]).shape[self.leading :])) for name in self.names]
        return np.repeat([by_output[name] for name in self.names], sizes)


class _Search:
    """What the twin delivers in all orders so far, by table and lane, and which candidates that were."""

    def __init__(self, tables: Sequence[_Table], ties: Ties, slack: Mapping[str, float]) -> None:
        self._tables, self._ties = tables, ties
        self._orders: list[list[Orders]] = []
        for table in tables:
            columns, first = table.columns(ties.runs[0], slack), table.rows(ties.runs[0])
            assert first is not None, "a table is made of the shapes of this run"
            self._orders.append([Orders(rows, columns) for rows in first])
        self._chosen = [ties.chosen[0]]
        self._draw = np.random.default_rng(_SEED)
        for run, chosen in zip(ties.runs[1:], ties.chosen[1:], strict=True):
            self._add(run, chosen)

    def allows(self, result: Mapping[str, Array]) -> bool:
        """Whether a right runtime may deliver that."""
        rows = self._rows(result)
        if rows is None:
            return False
        if _all_allow(rows):
            return True
        makers = np.ones(len(self._chosen[0]), bool)
        for _ in range(_REQUESTS):
            for _ in range(_DRAWN):
                self._add(*self._ties.prefer(makers & (self._draw.random(len(makers)) < 0.5)))
            makers = self._makers(rows)
            self._add(*self._ties.prefer(makers))
            if _all_allow(rows):
                return True
        return False

    def _add(self, run: Mapping[str, Array], chosen: Array) -> None:
        rows = self._rows(run)
        if rows is not None:
            self._chosen.append(chosen)
            for orders, own in rows:
                orders.add(own)

    def _rows(self, outputs: Mapping[str, Array]) -> list[tuple[Orders, Array]] | None:
        """Each lane's rows beside what is known of them; None where those are other lanes."""
        found = list[tuple[Orders, Array]]()
        for table, orders in zip(self._tables, self._orders, strict=True):
            rows = table.rows(outputs)
            if rows is None or len(rows) != len(orders) or (orders and rows.shape[2] != orders[0].columns):
                return None
            found += zip(orders, rows, strict=True)
        return found

    def _makers(self, rows: Sequence[tuple[Orders, Array]]) -> Array:
        """The candidates that were chosen in just those runs in which one of these rows was delivered."""
        marks = {mark.tobytes() for orders, own in rows for mark in np.packbits(orders.history(own), axis=1)}
        chosen = np.packbits(np.stack(self._chosen, 1), axis=1)
        return np.array([mark.tobytes() in marks for mark in chosen], bool)


def _all_allow(rows: Sequence[tuple[Orders, Array]]) -> bool:
    return all(orders.allow(own) for orders, own in rows)


def choose_among_ties(
    results: Sequence[Mapping[str, Array]], ranked: Collection[str], ties: Ties, floor: float
) -> bool:
    """Whether the ``ranked`` outputs of each of ``results`` are what the model may deliver, as far as ties decide.

    ``floor`` is the part of an output's largest true value that any two runtimes may differ by.
    """
    own = {name: value for name, value in ties.runs[0].items() if name in ranked}
    if not own or any(value.dtype.kind not in "fiub" for value in own.values()):
        return False
    search = _Search(tuple(_tables(own)), ties, {name: _slack(ties, name, floor) for name in own})
    return all(map(search.allows, results))


def _tables(outputs: Mapping[str, Array]) -> Iterator[_Table]:
    """Outputs that share rows: boxes (1, 100, 4) with scores (1, 100), and those that stand alone."""
    shapes = {name: np.atleast_1d(value).shape for name, value in outputs.items()}
    groups = defaultdict[tuple[int, ...], list[str]](list)
    for name, shape in shapes.items():
        shared = [lead for lead in _leads(shapes) if shape[: len(lead)] == lead]
        groups[max(shared, key=len) if shared else _alone(shape, outputs[name].dtype.kind)].append(name)
    return (_Table(tuple(names), len(lead)) for lead, names in groups.items())


def _leads(shapes: Mapping[str, tuple[int, ...]]) -> set[tuple[int, ...]]:
    """The shapes of outputs with one number for each row of another output."""
    return {
        lead
        for name, lead in shapes.items()
        if lead[-1] != 1 and any(shape[: len(lead)] == lead for other, shape in shapes.items() if other != name)
    }


def _alone(shape: tuple[int, ...], kind: str) -> tuple[int, ...]:
    """The rows of an output that shares them with none: all but the last axis, or integers each for itself."""
    if len(shape) == 1 or (kind in "iu" and np.prod(shape[:-1]) == 1):
        return shape
    return shape[:-1]


def _slack(ties: Ties, name: str, floor: float) -> float:
    """How far a number may be from the true one: roundings move it while the same candidates are chosen."""
    value = ties.runs[0][name]
    if value.dtype.kind != "f":
        return 0.0
    moved = ties.spread[name][np.isfinite(ties.spread[name])]
    finite = np.abs(value[np.isfinite(value)])
    typical = float(np.quantile(moved, TYPICAL)) if moved.size else 0.0
    return floor * float(finite.max(initial=0.0)) + ROUNDINGS * typical


def _flat(value: Array, flat: tuple[int, int]) -> Array:
    return value.reshape(*flat, int(np.prod(value.shape)) // max(1, flat[0] * flat[1]))
