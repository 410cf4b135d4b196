"""Choices of the best candidates, and what else they could be where candidates tie.

TopK and NonMaxSuppression ask by which scores they choose.  As a rule that is by the scores they are given.  To learn
what other right runtimes deliver, the twin chooses again and again: candidates whose scores tie change places, those
first that no run has chosen so far, until all have had their turn; or those first that are asked for.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.stage import FLOAT32

OPERATORS = frozenset({"TopK", "NonMaxSuppression"})
_TIE = 2 * (FLOAT32.relative or 0.0)
"""The part of a score by which two tie: each runtime may be off by the tolerance of float32."""
_LEAST = 1e-290
"""Scores of exactly 0 tie, too, and nothing else does by that."""
_ROUNDINGS = 16.0
"""How many times the spread of a few random roundings a score may be off, as in ``parity.truth``."""
_BESIDE = 3
"""A score's spread is the largest of so many to either side, since few runs may miss what moves one."""
_MOST = 64
"""Runs with tied candidates in another order."""
_PATIENCE = 4
"""So many runs that choose nothing new end the search."""
_Place = tuple[ir.Node, int]


class _Known:
    """What the first runs tell of one choice: ``scores`` and ``off`` as (lanes, candidates)."""

    def __init__(self, scores: Array) -> None:
        self.scores = scores
        self.order = np.argsort(-scores, axis=-1, kind="stable")
        self.off = np.zeros(scores.shape)
        """How far roundings move the best score, the next best and so on, whichever candidate has it."""
        self.taken = np.zeros(scores.shape, np.int64)
        """How often each candidate was chosen, over all runs."""
        self.now = np.zeros(scores.shape, bool)
        """Which are chosen in this run."""
        self.preferred = np.zeros(scores.shape, bool)

    def watch(self, perturbed: Array) -> None:
        with np.errstate(invalid="ignore"):
            apart = np.abs(-np.sort(-perturbed, -1) - np.take_along_axis(self.scores, self.order, -1))
        self.off = np.maximum(self.off, np.where(np.isfinite(apart), apart, 0.0))


class Choices:
    """By which scores the choices of a run are made; counts how often each candidate was chosen.

    New, it leaves all scores as they are.  Lanes are choices that one node makes side by side.
    """

    def __init__(self) -> None:
        self._known: dict[_Place, _Known] = {}
        self._calls: Counter[ir.Node] = Counter()
        self._watches = self._prefers = False
        self._turns = self._without_new = 0
        self._found_new = False

    def watch(self) -> None:
        """Begin a run of the kind that comes first: the model itself, then perturbed ones that choose the same."""
        self._begin(watches=True)

    def turn(self) -> bool:
        """Begin a run in which tied candidates change places; False where no more are to be expected."""
        self._without_new = 0 if self._found_new else self._without_new + 1
        if self._turns == _MOST or self._without_new > _PATIENCE:
            return False
        self._begin()
        self._found_new = False
        self._turns += 1
        return True

    def prefer(self, candidates: Array) -> None:
        """Begin a run in which those go first among tied ones; ``candidates`` as in :meth:`now`."""
        self._begin()
        self._prefers = True
        sizes = [known.scores.size for known in self._known.values()]
        parts = np.split(candidates, np.cumsum(sizes)[:-1]) if sizes else []
        for known, part in zip(self._known.values(), parts, strict=True):
            known.preferred = part.reshape(known.scores.shape)

    def now(self) -> Array:
        """Which candidates the run has chosen: booleans for those of all nodes and lanes, in one row."""
        return np.concatenate([known.now.reshape(-1) for known in self._known.values()] or [np.zeros(0, bool)])

    def _begin(self, *, watches: bool = False) -> None:
        self._calls.clear()
        self._watches, self._prefers = watches, False
        for known in self._known.values():
            known.now[:] = False

    def keys(self, node: ir.Node, scores: Array) -> Array:
        """By what the node chooses, the largest first; ``scores`` and result as (lanes, candidates), float64."""
        if not (self._watches or self._prefers or self._turns):
            return scores
        place = node, self._calls[node]
        known = self._known.get(place)
        if known is None or known.scores.shape != scores.shape:
            if known is None and self._watches:
                self._known[place] = _Known(scores)
            return scores
        if self._watches:
            known.watch(scores)
            return known.scores
        return self._turned(known, scores)

    def chosen(self, node: ir.Node, lane: int, candidates: Array) -> None:
        """Note what the node chose in one lane: indices.  Call :meth:`done` behind the last lane."""
        known = self._known.get((node, self._calls[node]))
        if known is not None and lane < len(known.taken) and candidates.max(initial=-1) < known.taken[lane].size:
            self._found_new |= bool((known.taken[lane, candidates] == 0).any())
            known.taken[lane, candidates] += 1
            known.now[lane, candidates] = True

    def done(self, node: ir.Node) -> None:
        """The node has chosen in all lanes."""
        self._calls[node] += 1

    def _turned(self, known: _Known, scores: Array) -> Array:
        order = np.argsort(-scores, axis=-1, kind="stable")
        slack = np.empty(scores.shape)
        np.put_along_axis(slack, order, _ROUNDINGS * _widest(known.off), -1)
        slack += _TIE * np.abs(np.where(np.isfinite(scores), scores, 0.0)) + _LEAST
        if self._prefers:
            return np.asarray(np.where(known.preferred, scores, scores - slack))
        if self._turns > 2:
            return np.asarray(scores - slack * (known.taken / max(1, int(known.taken.max(initial=0)))))
        # Every second one steps back behind the next, first these and then the others: all neighbours change places.
        steps_back = np.zeros(scores.shape)
        np.put_along_axis(steps_back, order[:, self._turns - 1 :: 2], 1.0, -1)
        return np.asarray(scores - slack * steps_back)


def _widest(off: Array) -> Array:
    """The largest of each and its neighbours, along the last axis."""
    padded = np.pad(off, ((0, 0), (_BESIDE, _BESIDE)))
    shifted = [padded[:, start : start + off.shape[1]] for start in range(2 * _BESIDE + 1)]
    return np.asarray(np.max(shifted, axis=0))
