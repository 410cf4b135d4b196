"""How long one call of an artifact takes here, alone or against its float32 form.

A figure for the report only: nothing that is delivered depends on a stopwatch.  Both are called in turns, first the one
and then the other first, and the factor is the median over such pairs: what else the machine does slows both of a pair.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from statistics import median, quantiles
from typing import Protocol, runtime_checkable

from convertkit import plugins
from convertkit.artifact import Artifact, is_small
from convertkit.findings.values import Latency
from convertkit.stage import Feed, Runner
from convertkit.state import with_state

_PAIR_SECONDS, _ALONE_SECONDS = 0.8, 0.2
_LEAST_SECONDS = 2e-4
"""A turn repeats its call for at least so long: a single one of a few microseconds is the clock's own noise."""
_MIN_ROUNDS, _MAX_ROUNDS = 5, 200


@runtime_checkable
class PreparedRunner(Protocol):
    """A runner that separates laying a feed in place from computing: the latter alone is what an app waits for."""

    def invocation(self, feed: Feed) -> Callable[[], object]:
        """A call that computes everything for ``feed``, which it may do any number of times."""
        ...


def measure_latency(artifact: Artifact, feed: Feed, float32: Artifact | None = None) -> Latency:
    """Time ``artifact`` on ``feed``, in turns with ``float32`` where that is given.

    Where that is large, runtimes that hold both would take more memory than anything before: each is timed alone.
    """
    if float32 is not None and not is_small(float32):
        mine, theirs = _by_itself(artifact, feed), _by_itself(float32, feed)
        rounds = min(len(mine), len(theirs))
        return compared(mine[:rounds], theirs[:rounds])
    with ExitStack() as stack:
        ours = _call(stack.enter_context(plugins.runner(artifact)), artifact, feed)
        if float32 is None:
            times = _alone(ours)
            return Latency(1e3 * median(times), len(times))
        reference = _call(stack.enter_context(plugins.runner(float32)), float32, feed)
        return compared(*_in_turns(ours, reference))


def compared(ours: list[float], float32: list[float]) -> Latency:
    """The comparison of seconds per call, taken in turns where both fit into memory."""
    factors = [theirs / mine for mine, theirs in zip(ours, float32, strict=True)]
    low, middle, high = quantiles(factors, n=4, method="inclusive")
    return Latency(1e3 * median(ours), len(ours), 1e3 * median(float32), middle, (low, high))


def _by_itself(artifact: Artifact, feed: Feed) -> list[float]:
    with plugins.runner(artifact) as runner:
        return _alone(_call(runner, artifact, feed))


def _call(runner: Runner, artifact: Artifact, feed: Feed) -> Callable[[], object]:
    full = with_state(artifact, feed)
    if isinstance(runner, PreparedRunner):
        return runner.invocation(full)
    return lambda: runner.run(full)


def _alone(call: Callable[[], object]) -> list[float]:
    repeats = _repeats(call)
    times: list[float] = []
    begun = time.perf_counter()
    while len(times) < _MAX_ROUNDS:
        times.append(_timed(call, repeats))
        if len(times) >= _MIN_ROUNDS and time.perf_counter() - begun > _ALONE_SECONDS:
            break
    return times


def _in_turns(ours: Callable[[], object], float32: Callable[[], object]) -> tuple[list[float], list[float]]:
    pair = (ours, float32)
    repeats = max(map(_repeats, pair))
    times: tuple[list[float], list[float]] = ([], [])
    begun = time.perf_counter()
    while len(times[0]) < _MAX_ROUNDS:
        order = (0, 1) if len(times[0]) % 2 == 0 else (1, 0)
        for place in order:
            times[place].append(_timed(pair[place], repeats))
        if len(times[0]) >= _MIN_ROUNDS and time.perf_counter() - begun > _PAIR_SECONDS:
            break
    return times


def _repeats(call: Callable[[], object]) -> int:
    """How often a turn makes the call; the first call, which sets things up, is made here and not counted."""
    call()
    return max(1, round(_LEAST_SECONDS / max(_timed(call, 1), 1e-9)))


def _timed(call: Callable[[], object], repeats: int) -> float:
    """Seconds for one call."""
    begun = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - begun) / repeats
