"""What a call of LiteRT takes beside its operators: most of what a file of a few small ones takes."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_HERE = Path(__file__).parent
_UNKNOWN = "x86"
"""Stands for a machine whose calls nothing has measured."""


@dataclass(frozen=True, slots=True)
class CallCosts:
    """Nanoseconds of a call, and of each of its operators beside its row of the tables.

    ``own`` is that of operators that XNNPACK leaves to LiteRT: of integers that stand for themselves, flags and sizes.
    """

    call: float
    operator: float
    own: float


def call_costs(machine: str) -> CallCosts:
    """Of one machine, as ``calls.toml`` tells them."""
    table = _table()
    return table.get(machine, table[_UNKNOWN])


@cache
def _table() -> Mapping[str, CallCosts]:
    rows = tomllib.loads((_HERE / "calls.toml").read_text())
    return {name: CallCosts(row["call"], row["operator"], row["own"]) for name, row in rows.items()}
