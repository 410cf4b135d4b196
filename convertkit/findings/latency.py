"""How long one call of an artifact takes here, alone or against its float32 form.

A figure for the report only: nothing that is delivered depends on a stopwatch.  Both are called in turns, first the one
and then the other first, and the factor is the median over such pairs: what else the machine does slows both of a pair.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from statistics import median, quantiles
from typing import Protocol, runtime_checkable

from convertkit import plugins
from convertkit.artifact import Artifact, is_small
from convertkit.findings.values import Latency
from convertkit.stage import Feed, Runner
from convertkit.state import with_state
from convertkit.turns import in_turns

_PAIR_SECONDS, _ALONE_SECONDS = 0.8, 0.2
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
        times_of = _timed({"ours": ours, "float32": reference}, _PAIR_SECONDS)
        return compared(times_of["ours"], times_of["float32"])


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


def _timed(calls: Mapping[str, Callable[[], object]], seconds: float) -> dict[str, list[float]]:
    times = in_turns(calls, seconds, least=_MIN_ROUNDS, most=_MAX_ROUNDS)
    return {name: taken.tolist() for name, taken in times.items()}


def _alone(call: Callable[[], object]) -> list[float]:
    return _timed({"": call}, _ALONE_SECONDS)[""]
