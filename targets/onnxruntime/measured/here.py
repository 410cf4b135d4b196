"""ONNX Runtime's cost tables of the machine at hand, measured in well below a minute: the device ``this``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from convertkit.targets.onnxruntime.measured import chains, others, tables
from convertkit.targets.onnxruntime.measured.chains import LEAST_NS, ROWS, found_of
from convertkit.targets.onnxruntime.measured.clock import Clock, Here

_COMMITTED = Path(__file__).parents[1] / "costs" / "x86.toml"
_CLOCK = Here(rounds=6, share=0.0, least_ns=5e5)
_LARGE = 3e7
"""Work of the largest operator that is timed: larger ones cost what smaller ones tell."""


def measured_tables(clock: Clock = _CLOCK) -> Mapping[str, Any]:
    """What the file ``costs/NAME.toml`` of other devices holds, as a value that JSON takes."""
    rows = [row for row in ROWS if row.work <= _LARGE]
    made = tables.placed(rows, [found_of(clock.nanoseconds(chains.models_of(row), row.shape)) for row in rows])
    committed = tomllib.loads(_COMMITTED.read_text())
    return {
        "cost": made | tables.beside(made, committed["cost"]),
        "other": tables.others(_others(clock)),
        "call": tables.call(clock.nanoseconds([others.chain(n) for n in others.CHAINS], (others.WIDE,))),
    }


def _others(clock: Clock) -> others.Times:
    found: others.Times = {}
    for row in others.OTHERS:
        for kind in row.kinds:
            halves = (row.shape[0] // 2, *row.shape[1:])
            dtype = np.float32 if kind == "float32" else np.uint8
            without, whole = clock.nanoseconds(others.models_of(row, kind), halves, dtype)
            found.setdefault((row.kind, kind), []).append((row.work, max(whole - without, LEAST_NS)))
    return found
