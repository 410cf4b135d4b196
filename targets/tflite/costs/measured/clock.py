"""What tells how long a TFLite file takes: this machine, or an emulated core (``arm.clock``)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from ai_edge_litert.interpreter import Interpreter

LONG_S, WARM = 0.001, 5


class Clock(Protocol):
    """Tells nanoseconds of one call of each file, one thread, with everything in the caches.

    ``exact`` says that equal calls take equally long: of two chains, one need not be much longer.
    """

    @property
    def exact(self) -> bool: ...

    def nanoseconds(self, paths: Sequence[Path]) -> list[float]: ...

    def longer(self, pairs: Sequence[tuple[Path, Path]]) -> list[float]:
        """By how much a call of the second of each pair takes longer than one of the first."""
        ...


@dataclass(frozen=True, slots=True)
class Here:
    """The machine at hand.

    One that others use, too, has slow moments: what counts is the least of several ``sweeps`` over all files, some time
    apart, each the least of several ``rounds``.
    """

    sweeps: int
    rounds: int
    exact: bool = False

    def nanoseconds(self, paths: Sequence[Path]) -> list[float]:
        """Best times."""
        runners = [opened(path) for path in paths]
        least = np.full(len(runners), np.inf)
        for _ in range(self.sweeps):
            least = np.minimum(least, [nanoseconds(runner, self.rounds) for runner in runners])
        return [float(each) for each in least]

    def longer(self, pairs: Sequence[tuple[Path, Path]]) -> list[float]:
        """Of best times."""
        times = iter(self.nanoseconds([path for pair in pairs for path in pair]))
        return [-next(times) + next(times) for _ in pairs]


def opened(path: Path) -> Interpreter:
    """Ready, with one thread."""
    runner = Interpreter(model_content=path.read_bytes(), num_threads=1)
    runner.allocate_tensors()
    runner.invoke()
    return runner


def nanoseconds(runner: Interpreter, rounds: int) -> float:
    """Best time of one call, with everything in the caches."""
    start = time.thread_time()
    for _ in range(WARM):
        runner.invoke()
    calls = max(1, round(LONG_S * WARM / max(time.thread_time() - start, 1e-6)))
    best = float("inf")
    for _ in range(rounds):
        start = time.thread_time()
        for _ in range(calls):
            runner.invoke()
        best = min(best, (time.thread_time() - start) / calls)
    return best * 1e9
