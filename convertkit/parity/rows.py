"""Rows that one lane of a model delivers when it chooses among tied candidates in one order and another."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from convertkit.artifact import Array

_FALLS = 4.0
"""Down the rows a score may rise by so many slacks: ties count as equal on both sides of a choice."""


class Orders:
    """Rows in all orders: ``first``, (rows, numbers), are those of the model's own order.

    ``slack`` says by column how far numbers may be from each other that are the same.
    """

    def __init__(self, first: Array, slack: Array) -> None:
        self._first, self._slack = first, slack
        self._pool = np.zeros((0, first.shape[1]))
        """All rows that any order delivers, those of the first one first."""
        self._home = np.zeros(0, np.int64)
        """Where a row stands in the order that delivered it first."""
        self._seen: list[Array] = []
        """For each order which of the pool, as far as known then, it delivers."""
        self._open = np.zeros(0, bool)
        """At which places orders differ."""
        self._rise = np.zeros(first.shape[1])
        """By how much each column rises at most from one row to the next."""
        self._counts = set[int]()
        self._same = defaultdict[bytes, list[int]](list)
        self.add(first)

    @property
    def columns(self) -> int:
        """Numbers of a row."""
        return int(self._first.shape[1])

    def add(self, rows: Array) -> None:
        """Take what another order delivers."""
        partners = self._partners(rows)
        new = np.flatnonzero(partners < 0)
        partners[new] = len(self._pool) + np.arange(len(new))
        for place in new:
            self._same[_key(rows[place])].append(int(partners[place]))
        self._pool = np.concatenate([self._pool, rows[new]])
        self._home = np.concatenate([self._home, new])
        seen = np.zeros(len(self._pool), bool)
        seen[partners] = True
        self._seen.append(seen)
        places = max(len(rows), len(self._open))
        self._open = np.pad(self._open, (0, places - len(self._open))) | self._differs(rows, places)
        self._rise = np.maximum(self._rise, _rise(rows))
        self._counts.add(len(rows))

    def history(self, rows: Array) -> Array:
        """For each of ``rows`` that any order delivers, (rows, orders): which do."""
        partners = self._partners(rows)
        return self._history()[partners[partners >= 0]]

    def allow(self, rows: Array) -> bool:
        """Whether a right runtime may deliver these rows."""
        if not min(self._counts) <= len(rows) <= max(self._counts):
            return False
        partners = self._partners(rows)
        always = np.flatnonzero(self._history().all(1))
        if (partners < 0).any() or not np.isin(always, partners).all():
            return False
        falls = self._falls()
        if falls.any():
            return bool((_rise(rows) <= self._rise + 2 * self._slack)[falls].all())
        moved = np.flatnonzero(self._home[partners] != np.arange(len(rows)))
        if moved.max(initial=-1) >= len(self._open):
            return False
        return bool((self._open[moved] & self._open[self._home[partners[moved]]]).all())

    def _history(self) -> Array:
        """(pool, orders)"""
        return np.stack([np.pad(seen, (0, len(self._pool) - len(seen))) for seen in self._seen], 1)

    def _falls(self) -> Array:
        """Which columns fall in every order."""
        if not len(self._first):
            return np.zeros(self.columns, bool)
        bound = _FALLS * self._slack
        return np.asarray((self._rise <= bound) & (self._first[0] - self._first[-1] > bound))

    def _differs(self, rows: Array, places: int) -> Array:
        """At which of ``places`` another row stands; where there are more or fewer rows, at all behind the first."""
        both = min(len(rows), len(self._first))
        differs = np.zeros(places, bool)
        differs[:both] = ~self._near(rows[:both], self._first[:both])
        if len(rows) != len(self._first):
            differs[int(differs.argmax()) if differs.any() else both :] = True
        return differs

    def _partners(self, rows: Array) -> Array:
        """For every row one of the pool that holds the same, each taken once, or -1."""
        partners = np.full(len(rows), -1)
        free = np.ones(len(self._pool), bool)
        both = min(len(rows), len(self._pool))
        own = np.flatnonzero(self._near(rows[:both], self._pool[:both]))
        partners[own], free[own] = own, False
        for place in np.flatnonzero(partners < 0):
            same = [each for each in self._same.get(_key(rows[place]), ()) if free[each]]
            if not same:
                same = list(np.flatnonzero(free & self._near(rows[place][None], self._pool))[:1])
            if same:
                partners[place], free[same[0]] = same[0], False
        return partners

    def _near(self, first: Array, second: Array) -> Array:
        """Which rows, (n, numbers), hold the same."""
        with np.errstate(invalid="ignore"):
            near = (np.abs(first - second) <= self._slack) | (first == second)
        return np.asarray((near | (np.isnan(first) & np.isnan(second))).all(-1))


def _key(row: Array) -> bytes:
    return np.asarray(row + 0.0).tobytes()  # the zeros of both signs are the same


def _rise(rows: Array) -> Array:
    """By how much each column rises at most from one row to the next."""
    with np.errstate(invalid="ignore"):
        steps = np.diff(rows, axis=0)
    return np.asarray(np.nan_to_num(steps, nan=0.0).max(axis=0, initial=0.0))
