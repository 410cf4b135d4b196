"""What a run has come to, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convertkit.looking.tables import Shown, Table
from convertkit.release.gates import Verdict
from convertkit.report.jsonable import jsonable
from convertkit.text import size_text


@dataclass(frozen=True, slots=True)
class CellResult:
    """One cell: ``folder`` and ``artifact`` lie below the release's folder; None where there is none.

    ``error`` is the sentence that ended it, ``code`` its exit code.  ``seconds`` are those of the run that made it.
    """

    name: str
    model: str
    target: str
    precision: str
    required: bool
    passed: bool
    folder: str | None = None
    artifact: str | None = None
    sha256: str | None = None
    size_bytes: int | None = None
    latency_ms: float | None = None
    accuracy: float | None = None
    metric: str | None = None
    drop: float | None = None
    agreement: float | None = None
    snr_db: float | None = None
    verdicts: tuple[Verdict, ...] = ()
    error: str = ""
    kind: str = ""
    code: int = 0
    seconds: float = 0.0
    cached: bool = False
    memory_bytes: int | None = None
    """The most that it takes to load and to run, where a gate asks for it."""
    change: Mapping[str, float] | None = None
    """Against the baseline, where there is one: ratios of ``size`` and ``latency``, the ``drop`` of accuracy."""

    def as_json(self) -> dict[str, Any]:
        """The cell as ``results.json`` and ``--json`` have it."""
        found: dict[str, Any] = jsonable(self)
        return found


@dataclass(frozen=True, slots=True, repr=False)
class Release(Shown):
    """A release that was published, or the results of one that was withheld: ``path`` is its folder in both cases."""

    path: Path
    name: str
    passed: bool
    cells: tuple[CellResult, ...]

    def cell(self, name: str) -> CellResult:
        """The cell ``MODEL:TARGET:PRECISION``; ``KeyError`` where there is none."""
        return {each.name: each for each in self.cells}[name]

    @property
    def headline(self) -> str:
        """What became of it."""
        good = sum(each.passed for each in self.cells)
        word = "published" if self.passed else "WITHHELD"
        return f"{self.name}: {good} of {len(self.cells)} cells passed, {word}: {self.path}"

    def tables(self) -> tuple[Table, ...]:
        """A row for each cell."""
        head = ("cell", "passed", "size", "latency", "accuracy", "change")
        return (Table("", head, tuple(map(_row, self.cells)), (2, 3)),)

    def remarks(self) -> tuple[str, ...]:
        """Why cells have failed."""
        return tuple(f"{each.name}: {each.error.splitlines()[0]}" for each in self.cells if each.error)

    def as_json(self) -> dict[str, Any]:
        """The release as ``--json`` has it."""
        cells = [each.as_json() for each in self.cells]
        return {"name": self.name, "passed": self.passed, "folder": str(self.path), "cells": cells}


def _row(cell: CellResult) -> tuple[str, ...]:
    return (
        cell.name,
        "yes" if cell.passed else "NO" if cell.required else "no, not required",
        "" if cell.size_bytes is None else size_text(cell.size_bytes),
        "" if cell.latency_ms is None else f"{cell.latency_ms:.3f} ms",
        "" if cell.accuracy is None else f"{cell.metric} {cell.accuracy:.4g}",
        change_text(cell),
    )


def change_text(cell: CellResult) -> str:
    """How a cell differs from the baseline's: ``size × 0.98, latency × 1.02, accuracy +0.1``."""
    change = dict(cell.change or {})
    moved = change.pop("accuracy", None)
    words = [f"{name} × {ratio:.3g}" for name, ratio in change.items()]
    return ", ".join([*words, *([] if moved is None else [f"accuracy {moved:+.3g}"])])


def line(cell: CellResult) -> str:
    """A cell that is done, in one line."""
    mark = "ok  " if cell.passed else "FAIL"
    time = "cached" if cell.cached else f"{cell.seconds:.2f} s"
    size = "" if cell.size_bytes is None else size_text(cell.size_bytes)
    said = cell.error.splitlines()[0] if cell.error else ""
    return f"{mark} {cell.name:<40} {time:>9} {size:>9}  {said}".rstrip()
