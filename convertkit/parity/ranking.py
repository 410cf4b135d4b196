"""Rows in the order of their scores, where scores that differ by less than a runtime rounds may change places.

A detector delivers boxes, classes and scores of its best candidates, best first.  Two right runtimes order scores that
are all but equal in different ways, and every output then differs by a whole row.  Such rows are compared with the row
that they are, and only such: the scores are ranked in both results, tie within the tolerance, and all outputs change
places together.  Everything else stays where it is, for the comparison to judge.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from convertkit.artifact import Array

_COLUMNS = 16
"""A row of more numbers is not a row of coordinates with a score among them."""


@dataclass(frozen=True, slots=True)
class _Ranks:
    """Scores of the expected result as (lanes, places), and how many leading axes of an output that are."""

    scores: Array
    leading: int
    slack: float


def in_place(
    wanted: Mapping[str, Array], found: Mapping[str, Array], ranked: Collection[str], relative: float
) -> tuple[Mapping[str, Array], int]:
    """``found`` with rows of tied scores in the order of ``wanted``, and how many rows that moved.

    ``ranked`` names the outputs that follow a TopK or a suppression; ``relative`` is what an output may differ by,
    as a part of its largest value.
    """
    names = [name for name in wanted if name in ranked and wanted[name].shape == found[name].shape]
    slack = {name: relative * _largest(wanted[name]) for name in names}
    if all(_agrees(wanted[name], found[name], slack[name]) for name in names):
        return found, 0
    for ranks in _rankings([(wanted[name], found[name], slack[name]) for name in names]):
        shape = ranks.scores.shape
        rows = {
            name: (_rows(wanted[name], shape), _rows(found[name], shape), slack[name])
            for name in names
            if _leads(wanted[name], ranks.leading, shape)
        }
        order, moved = _order(ranks, list(rows.values()))
        if moved:
            lanes = np.arange(len(order))[:, None]
            turned = {name: rows[name][1][lanes, order].reshape(wanted[name].shape) for name in rows}
            return {**found, **turned}, moved
    return found, 0


def _rankings(results: list[tuple[Array, Array, float]]) -> Iterator[_Ranks]:
    """What may be the scores: the last axis of an output, or a column of its rows."""
    for wanted, found, slack in results:
        if wanted.dtype.kind != "f" or not np.isfinite(wanted).all() or not np.isfinite(found).all():
            continue
        for leading in range(1, wanted.ndim + 1):
            places = wanted.shape[leading - 1]
            columns = int(np.prod(wanted.shape[leading:]))
            if places < 2 or columns > _COLUMNS or wanted.size == 0:
                continue
            shape = (-1, places, columns)
            for column in range(columns):
                first, second = (each.reshape(shape)[..., column].astype(np.float64) for each in (wanted, found))
                if _is_ranked(first, second, slack):
                    yield _Ranks(first, leading, slack)


def _is_ranked(wanted: Array, found: Array, slack: float) -> bool:
    """Whether both fall, or both rise, along the last axis, stay close to each other and are not all the same."""
    if np.ptp(wanted) <= slack or not _agrees(wanted, found, slack):
        return False
    steps = [np.diff(each, axis=-1) for each in (wanted, found)]
    return all(bool((step <= 0).all()) for step in steps) or all(bool((step >= 0).all()) for step in steps)


def _leads(value: Array, leading: int, shape: tuple[int, ...]) -> bool:
    return (
        value.ndim >= leading
        and value.shape[leading - 1] == shape[1]
        and int(np.prod(value.shape[: leading - 1])) == shape[0]
    )


def _rows(value: Array, shape: tuple[int, ...]) -> Array:
    """As (lanes, places, numbers of a row)."""
    return value.reshape(*shape, -1)


def _order(ranks: _Ranks, rows: list[tuple[Array, Array, float]]) -> tuple[Array, int]:
    """For every lane and place the place of ``found`` that belongs there, and how many are other ones than before."""
    lanes, places = ranks.scores.shape
    order = np.tile(np.arange(places), (lanes, 1))
    for lane in range(lanes):
        ties = np.abs(np.diff(ranks.scores[lane])) <= 2 * ranks.slack
        ends = np.flatnonzero(~ties) + 1
        for group in np.split(np.arange(places), ends):
            if len(group) > 1:
                order[lane, group] = group[_matched(_same_rows(lane, group, rows))]
    return order, int((order != np.arange(places)).sum())


def _same_rows(lane: int, group: Array, rows: list[tuple[Array, Array, float]]) -> Array:
    """Which row of the expected result is which of the other one, over all outputs."""
    same = np.ones((len(group), len(group)), bool)
    for wanted, found, slack in rows:
        first, second = wanted[lane, group][:, None], found[lane, group][None]
        if wanted.dtype.kind == "f":
            with np.errstate(invalid="ignore"):
                near = (np.abs(second.astype(np.float64) - first) <= slack) | (first == second)
        else:
            near = first == second
        same &= near.all(-1)
    return same


def _matched(same: Array) -> Array:
    """A partner for every row, its own place where that does; rows without one take what is left, in order."""
    chosen = np.full(len(same), -1)
    free = np.ones(len(same), bool)
    for row in np.flatnonzero(np.diag(same)):
        chosen[row], free[row] = row, False
    for row in np.flatnonzero(chosen < 0):
        partners = np.flatnonzero(same[row] & free)
        if partners.size:
            chosen[row], free[partners[0]] = partners[0], False
    chosen[chosen < 0] = np.flatnonzero(free)
    return chosen


def _agrees(wanted: Array, found: Array, slack: float) -> bool:
    if wanted.dtype.kind != "f":
        return bool(np.array_equal(wanted, found))
    with np.errstate(invalid="ignore"):
        near = np.abs(found.astype(np.float64) - wanted) <= slack
    return bool((near | (wanted == found)).all())


def _largest(value: Array) -> float:
    if value.dtype.kind != "f":
        return 0.0
    finite = np.abs(value[np.isfinite(value)].astype(np.float64))
    return float(finite.max(initial=0.0))
