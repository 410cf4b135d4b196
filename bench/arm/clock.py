"""The clock of a core that is not here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from arm.cores import Core
from arm.emulator import counted
from arm.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Emulated:
    """Estimates: the same for the same files, wherever they are made.

    ``calls`` as :func:`arm.emulator.counted` takes it: 1 is fast, and right where differences of two files are wanted.
    """

    core: Core
    calls: int = 1
    exact: bool = True

    def nanoseconds(self, paths: Sequence[Path]) -> list[float]:
        """Of one call of each."""
        counts, _ = counted(paths, self.core, self.calls)
        return [each.nanoseconds for each in Schedule(self.core).estimates(counts)]
