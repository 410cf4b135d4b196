"""The cores that costs are estimated for, as ``cores.toml`` tells them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_CORES = Path(__file__).with_name("cores.toml")
LEVELS = 3


@dataclass(frozen=True, slots=True)
class Core:
    """A processor core; times are in its cycles.

    ``wide_per_cycle`` bounds the 128-bit floating-point products of a cycle where LLVM's schedule has none: 0 is no
    bound.  ``streamed`` and ``random`` are what a line costs that level 1, 2, 3 lacks; from level
    ``shared`` (0 is the first) on, cores wait for each other at what answers.
    """

    name: str
    architecture: str
    emulated: str
    part: str
    features: str
    schedule: str
    clock_ghz: float
    caches: tuple[tuple[int, int], ...]
    streamed: tuple[float, ...]
    random: tuple[float, ...]
    shared: int = LEVELS
    wide_per_cycle: float = 0.0

    def cpuinfo(self) -> str:
        """What Linux would say of four of them in /proc/cpuinfo."""
        lines = ("CPU implementer\t: 0x41", "CPU architecture: 8", "CPU variant\t: 0x1", f"CPU part\t: {self.part}")
        each = "\n".join((f"Features\t: {self.features}", *lines, "CPU revision\t: 0"))
        return "".join(f"processor\t: {place}\nBogoMIPS\t: 38.40\n{each}\n\n" for place in range(4))

    def waiting(self, misses: tuple[float, ...], threads: int = 1) -> float:
        """Cycles of ``misses``: lines that level 1, 2, 3 lacked, streamed and random in turns.

        Threads share the lines among them; of what they have in common they wait for all.
        """
        costs = zip(self.streamed, self.random, misses[::2], misses[1::2], strict=True)
        return sum(
            (streamed * seen + random * unseen) / (threads if level < self.shared else 1)
            for level, (streamed, random, seen, unseen) in enumerate(costs)
        )


def cores() -> dict[str, Core]:
    """By name."""
    return {name: _core(name, row) for name, row in tomllib.loads(_CORES.read_text()).items()}


def _core(name: str, row: dict[str, Any]) -> Core:
    caches = tuple((int(size), int(ways)) for size, ways in row.pop("caches"))
    costs = {key: tuple(map(float, row.pop(key))) for key in ("streamed", "random")}
    return Core(name=name, caches=caches, **costs, **row)
