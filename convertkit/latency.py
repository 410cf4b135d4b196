"""How long one call of an artifact takes here, against another one, in one interleaved run.

A figure for the report only: nothing that is delivered depends on a stopwatch.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median

from convertkit import plugins
from convertkit.artifact import Artifact
from convertkit.stage import Feed, Runner
from convertkit.state import initial_state, started, state_sizes

_MAX_SECONDS = 1.0
_MIN_ROUNDS, _MAX_ROUNDS = 5, 200


@dataclass(frozen=True, slots=True)
class Latency:
    """Median milliseconds per call of the delivered artifact and of the same model in float32."""

    artifact_ms: float
    float32_ms: float
    rounds: int

    @property
    def slower(self) -> bool:
        """Whether the delivered artifact is clearly slower than float32 on this machine."""
        return self.artifact_ms > 1.05 * self.float32_ms


def compare_latency(artifact: Artifact, float32: Artifact, feed: Feed) -> Latency:
    """Time both artifacts on ``feed``, turn and turn about, for about a second."""
    times: tuple[list[float], list[float]] = ([], [])
    with plugins.runner(artifact) as ours, plugins.runner(float32) as reference:
        shapes = {spec.name: spec.source_shape for spec in artifact.inputs}
        full = {**started(initial_state(artifact), shapes, state_sizes(shapes, feed)), **feed}
        pair = (ours, reference)
        for runner in pair:
            _timed(runner, full)
        begun = time.perf_counter()
        while len(times[0]) < _MAX_ROUNDS:
            for runner, seconds in zip(pair, times, strict=True):
                seconds.append(_timed(runner, full))
            if len(times[0]) >= _MIN_ROUNDS and time.perf_counter() - begun > _MAX_SECONDS:
                break
    return Latency(1e3 * median(times[0]), 1e3 * median(times[1]), len(times[0]))


def _timed(runner: Runner, feed: Feed) -> float:
    begun = time.perf_counter()
    runner.run(feed)
    return time.perf_counter() - begun
