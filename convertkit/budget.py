"""``--budget``: what an artifact may weigh or take, and the points of the trade-off that were looked at."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from convertkit.errors import UsageError
from convertkit.recipe import Precision

_UNITS = {
    "size": {"": 1.0, "B": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KIB": 2.0**10, "MIB": 2.0**20, "GIB": 2.0**30},
    "latency": {"US": 1e-3, "MS": 1.0, "S": 1e3},
}
"""In bytes, and in milliseconds."""
_TEXT = re.compile(r"(size|latency)=(\d+(?:\.\d+)?)\s*([A-Za-z]*)")


@dataclass(frozen=True, slots=True)
class Budget:
    """The most bytes of a file, or the most milliseconds of a call by the target's cost table."""

    kind: Literal["size", "latency"]
    limit: float


@dataclass(frozen=True, slots=True)
class Point:
    """One way to make the artifact, and what came of it.

    ``ms`` is the time of a call on the slowest device that was asked for, by its cost table; None where none knows it.
    ``snr_db`` and ``agreement`` (0 to 1) are of held-out samples of the calibration data.
    """

    precision: Precision
    prune_channels: str | None
    prune: str | None
    low_rank: str | None
    bytes: int
    ms: float | None
    snr_db: float
    agreement: float | None
    fits: bool
    chosen: bool = False

    @property
    def told(self) -> str:
        """``int8, 30 % of the channels gone``."""
        parts: list[str] = [self.precision]
        if self.prune_channels is not None:
            parts.append(f"{float(self.prune_channels):.0%} of the channels gone")
        if self.prune is not None:
            is_share = self.prune[:1] in ("0", ".")
            parts.append(f"{float(self.prune):.0%} of the weights zero" if is_share else f"pruned {self.prune}")
        if self.low_rank is not None:
            parts.append(f"two factors that keep {float(self.low_rank):.1%}")
        return ", ".join(parts)


def budget_of(text: str) -> Budget:
    """Parse ``size=200KB`` or ``latency=2ms``; ``UsageError`` for anything else."""
    found = _TEXT.fullmatch(text.strip())
    if found is not None and found[3].upper() in _UNITS[found[1]] and float(found[2]) > 0:
        limit = float(found[2]) * _UNITS[found[1]][found[3].upper()]
        return Budget("size" if found[1] == "size" else "latency", limit)
    raise UsageError(f"--budget {text}: expected size=200KB or latency=2ms")


def measure_of(point: Point, budget: Budget) -> float | None:
    """What the budget limits, of one point: bytes or milliseconds; None where it is not known."""
    return float(point.bytes) if budget.kind == "size" else point.ms


def amount(value: float, kind: str) -> str:
    """Bytes or milliseconds for people."""
    if kind == "latency":
        return f"{value:.3g} ms"
    return f"{value / 1e6:.2f} MB" if value >= 1e6 else f"{value / 1e3:.1f} KB"
