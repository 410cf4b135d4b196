"""What a run has come to, as values."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convertkit.release.gates import Verdict
from convertkit.report.jsonable import jsonable


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
    change: Mapping[str, float] | None = None
    """Against the baseline, where there is one: ratios of ``size`` and ``latency``, the ``drop`` of accuracy."""

    def as_json(self) -> dict[str, Any]:
        """The cell as ``results.json`` and ``--json`` have it."""
        found: dict[str, Any] = jsonable(self)
        return found


@dataclass(frozen=True, slots=True, repr=False)
class Release:
    """A release that was published, or the results of one that was withheld: ``path`` is its folder in both cases."""

    path: Path
    name: str
    passed: bool
    cells: tuple[CellResult, ...]

    def cell(self, name: str) -> CellResult:
        """The cell ``MODEL:TARGET:PRECISION``; ``KeyError`` where there is none."""
        return {each.name: each for each in self.cells}[name]

    def __repr__(self) -> str:
        good = sum(each.passed for each in self.cells)
        word = "published" if self.passed else "WITHHELD"
        return f"<Release {self.name}, {good} of {len(self.cells)} cells passed, {word}: {self.path}>"

    def _repr_html_(self) -> str:
        head = ("cell", "passed", "bytes", "ms", "accuracy")
        rows = [
            (each.name, "yes" if each.passed else each.error or "NO", each.size_bytes, each.latency_ms, each.accuracy)
            for each in self.cells
        ]
        cells = "".join(
            "<tr>" + "".join(f"<td>{'' if cell is None else html.escape(str(cell))}</td>" for cell in row) + "</tr>"
            for row in rows
        )
        return f"<table><tr>{''.join(f'<th>{each}</th>' for each in head)}</tr>{cells}</table>"
