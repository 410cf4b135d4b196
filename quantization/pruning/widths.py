"""How many channels of each group stay: what costs the outputs least for what it wins.

Groups lose units step by step, always where the noise that is added, for what is won, is least.  A step may be wide:
kernels compute whole tiles, so that a few channels less may win nothing and a few more a whole tile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from convertkit.artifact import Array
from convertkit.quantization.pruning.priced import Counts, Prices

_STEPS = 16
"""A group of more units than this loses several at once …"""
_AHEAD = 8
"""… and steps of up to so many times that are looked at."""
_LEAST = 0.1
"""The share of a group that always stays."""
_MOST_OF_A_GROUP = 2.0
"""Where nothing was measured, a group loses at most this many times what all lose: weights alone tell little."""


@dataclass(frozen=True, slots=True)
class Curve:
    """What the outputs lose with none, one, two … units of a group gone, and whether that was measured."""

    noise: Array
    measured: bool = True

    @property
    def units(self) -> int:
        """All of the group."""
        return len(self.noise)

    @property
    def step(self) -> int:
        """How many go at once."""
        return max(1, self.units // _STEPS)

    def of(self, kept: int) -> float:
        """With so many left."""
        return float(self.noise[self.units - kept])


def narrowed(curves: Sequence[Curve], prices: Prices, sizes: Sequence[int], share: float) -> Counts:
    """``share`` of all channels gone, ``sizes`` of each group in all.

    Time and channels count alike on the way; channels alone where nothing was measured.
    """
    whole = tuple(curve.units for curve in curves)
    channels, time = float(sum(sizes)), max(prices.total(whole), 1e-9)

    def price(place: int, counts: Counts) -> float:
        kept = sizes[place] * counts[place] / whole[place]
        return kept / channels + (prices.of_group(place, counts) / time if curves[place].measured else 0.0)

    def done(counts: Counts) -> bool:
        kept = sum(size * count / most for size, count, most in zip(sizes, counts, whole, strict=True))
        return bool(channels - kept >= share * channels - 0.5)

    return _descended(curves, prices, price, done, share)


def quickened(curves: Sequence[Curve], prices: Prices, share: float) -> Counts:
    """As many channels gone as bring the time to ``share`` of what it was, or as many as may go."""
    whole = tuple(curve.units for curve in curves)
    wanted = share * prices.total(whole)
    return _descended(curves, prices, prices.of_group, lambda counts: prices.total(counts) <= wanted, 1 - share)


def _descended(
    curves: Sequence[Curve], prices: Prices, price: Callable[[int, Counts], float], done: Callable[[Counts], bool],
    share: float,
) -> Counts:  # fmt: skip
    counts = tuple(curve.units for curve in curves)
    best: dict[int, tuple[float, int]] = {}
    while not done(counts):
        for place, curve in enumerate(curves):
            if place not in best:
                best[place] = _best_step(curve, place, counts, price, _least(curve, share))
        ratio, chosen = min((found[0], place) for place, found in best.items())
        if not np.isfinite(ratio):
            break
        counts = _with(counts, chosen, best[chosen][1])
        for place in prices.neighbours(chosen) | {chosen}:
            best.pop(place, None)
    return counts


def _least(curve: Curve, share: float) -> int:
    """How many units stay in any case, where ``share`` of all goes."""
    kept = _LEAST if curve.measured else max(1 - _MOST_OF_A_GROUP * share, _LEAST)
    return max(1, round(kept * curve.units))


def _best_step(
    curve: Curve, place: int, counts: Counts, price: Callable[[int, Counts], float], least: int
) -> tuple[float, int]:
    """The noise per gain of the best number of units to have next, and that number; infinite where there is none."""
    now, found = counts[place], (float("inf"), counts[place])
    before = price(place, counts)
    for ahead in range(1, _AHEAD + 1):
        kept = -(-(now - ahead * curve.step) // curve.step) * curve.step
        if kept < least:
            break
        gain = before - price(place, _with(counts, place, kept))
        ratio = (curve.of(kept) - curve.of(now)) / gain if gain > 0 else float("inf")
        if ratio < found[0] * (1 - 1e-9):  # of equal ones the shortest
            found = ratio, kept
    return found


def _with(counts: Counts, place: int, count: int) -> Counts:
    return (*counts[:place], count, *counts[place + 1 :])
