"""Timing several things in turns, and what the times tell: quantiles, ratios, how sure these are."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from convertkit.artifact import Array

_LEAST_SECONDS = 2e-4
"""A turn repeats its call for at least so long: a single one of a few microseconds is the clock's own noise."""
_LEAST_ROUNDS, _MOST_ROUNDS = 15, 2000
_RESAMPLES = 2000
_SURE = 0.99
"""How sure an interval is to hold the true median: of a hundred, one may not."""
_SIDE = 160


@dataclass(frozen=True, slots=True)
class Interval:
    """A median, and the interval in which the true one lies with 99 % confidence."""

    median: float
    low: float
    high: float

    @property
    def text(self) -> str:
        """For people."""
        if self.low == self.high:
            return f"{self.median:.3g}"
        return f"{self.median:.3g} ({self.low:.3g} to {self.high:.3g})"


def exactly(number: float) -> Interval:
    """Of what is known without measuring."""
    return Interval(number, number, number)


def in_turns(
    calls: Mapping[str, Callable[[], object]],
    seconds: float,
    *,
    least: int = _LEAST_ROUNDS,
    most: int = _MOST_ROUNDS,
) -> dict[str, Array]:
    """Seconds per call of each, as many rounds as fit; every round begins with another, and its calls are neighbours.

    So whatever else the machine does slows all of them alike.  There are ``least`` rounds and no more than ``most``.
    """
    names = tuple(calls)
    repeats = {name: _repeats(call) for name, call in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in names}
    begun = time.perf_counter()
    for round_ in range(most):
        if round_ >= least and time.perf_counter() - begun > seconds:
            break
        first = round_ % len(names)
        for name in (*names[first:], *names[:first]):
            times[name].append(_timed(calls[name], repeats[name]))
    return {name: np.array(taken) for name, taken in times.items()}


def ratio(ours: Array, theirs: Array) -> Interval:
    """How much longer the first takes than the second, round by round."""
    return interval(ours / theirs)


def interval(values: Array) -> Interval:
    """The median of a sample, with an interval by resampling it (Efron 1979); the same values give the same one."""
    draw = np.random.default_rng(0)
    picked = draw.integers(0, values.size, (_RESAMPLES, values.size))
    medians = np.median(values[picked], axis=1)
    low, high = np.quantile(medians, ((1 - _SURE) / 2, (1 + _SURE) / 2))
    return Interval(float(np.median(values)), float(low), float(high))


def quantiles_ms(seconds: Array, at: Sequence[float]) -> tuple[float, ...]:
    """Milliseconds at quantiles of the calls."""
    return tuple(float(each) for each in 1e3 * np.quantile(seconds, at))


def yardstick() -> Callable[[], object]:
    """A fixed piece of work, by which times of different hours and machines are compared: products and exponentials."""
    draw = np.random.default_rng(0).standard_normal
    left, right = draw((_SIDE, _SIDE)).astype(np.float32), draw((_SIDE, _SIDE)).astype(np.float32)

    from threadpoolctl import threadpool_limits

    def work() -> object:
        with threadpool_limits(limits=1, user_api="blas"):
            return np.tanh(left @ right)

    return work


def _repeats(call: Callable[[], object]) -> int:
    """How often a turn makes the call; the first calls, which set things up, are made here and not counted."""
    call()
    return max(1, round(_LEAST_SECONDS / max(_timed(call, 1), 1e-9)))


def _timed(call: Callable[[], object], repeats: int) -> float:
    begun = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - begun) / repeats
