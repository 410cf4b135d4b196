"""The clock of a core that is not here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from arm.cores import Core
from arm.emulator import Counts, counted
from arm.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Emulated:
    """Estimates: the same for the same files, wherever they are made.

    ``calls`` as :func:`arm.emulator.counted` takes it.  1 is faster, but then lines that the process touches for the
    first time count as missed: of a chain that computes for 1,000 cycles they were up to 2,500.
    """

    core: Core
    calls: int = 2
    exact: bool = True

    def nanoseconds(self, paths: Sequence[Path]) -> list[float]:
        """Of one call of each."""
        counts, _ = counted(paths, self.core, self.calls)
        return [each.nanoseconds for each in Schedule(self.core).estimates(counts)]

    def longer(self, pairs: Sequence[tuple[Path, Path]]) -> list[float]:
        """By how much a call of the second of each pair takes longer: what it executes beyond the first is timed.

        The times of two whole calls would not do: of what both execute, the schedule sees other walks in each.
        """
        counts, _ = counted([path for pair in pairs for path in pair], self.core, self.calls)
        parts = list(zip(counts[::2], counts[1::2], strict=True))
        schedule = Schedule(self.core)
        more = schedule.estimates([_beyond(first, second) for first, second in parts])
        less = schedule.estimates([_beyond(second, first) for first, second in parts])
        lines = [tuple(b - a for a, b in zip(first.misses, second.misses, strict=True)) for first, second in parts]
        cycles = [b.cycles - a.cycles + self.core.waiting(each) for a, b, each in zip(less, more, lines, strict=True)]
        return [each / self.core.clock_ghz for each in cycles]


def _beyond(first: Counts, second: Counts) -> Counts:
    """What the second executes more often."""
    more = {pair: count - first.pairs.get(pair, 0.0) for pair, count in second.pairs.items()}
    return Counts({pair: count for pair, count in more.items() if count > 0}, (0.0,) * len(first.misses))
