"""From a made cell to its result: the report's numbers, the gates, and how it compares with the baseline's cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convertkit import plugins
from convertkit.artifact import Artifact
from convertkit.errors import ConvertKitError, GateError, SourceError
from convertkit.findings.estimates import estimates
from convertkit.operators import EstimatingTarget
from convertkit.release import golden
from convertkit.release.cells import Cell
from convertkit.release.gates import ESTIMATE_GATE, Evidence, Report
from convertkit.release.gates import judged as verdicts_of
from convertkit.release.making import MadeCell
from convertkit.release.names import RELEASE
from convertkit.release.result import CellResult
from convertkit.result import Result, load, read_json


@dataclass(frozen=True, slots=True)
class Baseline:
    """An earlier release, by the names of its cells."""

    path: Path
    cells: Mapping[str, Mapping[str, Any]]

    @classmethod
    def at(cls, path: Path) -> Baseline:
        """The release in a folder; ``SourceError`` where there is none."""
        if not (path / RELEASE).is_file():
            raise SourceError(f"the baseline {path} is not a release: it has no {RELEASE}")
        try:
            return cls(path, {each["name"]: each for each in read_json(path / RELEASE)["cells"]})
        except (KeyError, TypeError) as error:
            raise SourceError(f"{path / RELEASE} is not what a release holds: {error}") from error

    def cell(self, name: str) -> Result | None:
        """The artifact of that cell; None where the baseline has no such cell, ``SourceError`` where it is damaged."""
        found = self.cells.get(name)
        return None if found is None or found["artifact"] is None else load(self.path / str(found["folder"]))

    def vectors(self, name: str) -> Path | None:
        """The file of its golden vectors."""
        found = self.cells[name].get("golden")
        return None if not found else self.path / str(found["file"])


def judged(made: MadeCell, baseline: Baseline | None) -> CellResult:
    """What is told of a cell; its gates fail it with :class:`GateError`'s exit code."""
    if made.error is not None or made.folder is None:
        return _failed(made, made.error or ConvertKitError("nothing was made"))
    result = load(made.folder)
    evidence = _evidence(made, result, baseline)
    verdicts = verdicts_of(made.cell.gates, evidence)
    broken = [each.sentence for each in verdicts if not each.passed]
    return CellResult(
        **_named(made.cell),
        passed=not broken,
        folder=made.cell.folder,
        artifact=f"{made.cell.folder}/{result.artifact.path.name}",
        sha256=result.artifact.sha256,
        **_measured(result.report, result.size),
        memory_bytes=made.memory_bytes,
        verdicts=verdicts,
        error="; ".join(broken),
        kind=GateError.__name__ if broken else "",
        code=GateError.exit_code if broken else 0,
        seconds=round(made.seconds, 3),
        cached=made.cached,
        change=_change(evidence),
    )


def _failed(made: MadeCell, error: ConvertKitError) -> CellResult:
    report = made.report
    return CellResult(
        **_named(made.cell),
        passed=False,
        folder=None if report is None else made.cell.folder,
        **({} if report is None else _measured(report, None)),
        error=str(error),
        kind=type(error).__name__,
        code=error.exit_code,
        seconds=round(made.seconds, 3),
    )


def _named(cell: Cell) -> dict[str, Any]:
    return {
        "name": cell.name,
        "model": cell.model.name,
        "target": cell.target,
        "precision": cell.precision,
        "required": cell.required,
    }


def _measured(report: Report, size_bytes: int | None) -> dict[str, Any]:
    """The numbers of a report that stand in a table."""
    latency, evaluation, quality = (report[part] or {} for part in ("latency", "evaluation", "quality"))
    return {
        "size_bytes": size_bytes,
        "latency_ms": latency.get("artifact_ms"),
        "accuracy": evaluation.get("after"),
        "metric": evaluation.get("metric"),
        "drop": evaluation.get("drop"),
        "agreement": quality.get("agreement"),
        "snr_db": quality.get("snr_db"),
    }


def _evidence(made: MadeCell, result: Result, baseline: Baseline | None) -> Evidence:
    old = None if baseline is None else baseline.cell(made.cell.name)
    if baseline is None or old is None:
        doubt = "the recipe names no baseline" if baseline is None else "the baseline has no such cell"
        return Evidence(result.report, result.size, doubt=doubt, memory_bytes=made.memory_bytes)
    ratio = _ratio(result, old.artifact, made.golden)
    before = _estimated(old.artifact) if ESTIMATE_GATE in made.cell.gates else {}
    return Evidence(
        result.report, result.size, old.report, old.size, ratio,
        memory_bytes=made.memory_bytes, baseline_estimates=before,
    )  # fmt: skip


def _estimated(old: Artifact) -> Mapping[str, float]:
    """Milliseconds of the baseline's file by device; empty where no cost tables know it."""
    target = plugins.target(old.format)
    if not isinstance(target, EstimatingTarget):
        return {}
    found = estimates(target, old, None, ())
    return {each.device: each.ms for each in found.devices}


def _ratio(result: Result, old: Artifact, vectors: Path | None) -> tuple[float, float, float] | None:
    """Quartiles of this latency over the baseline's, called in turns on the same inputs; None where not to be had."""
    from convertkit.findings.latency import measure_latency

    if result.latency is None or vectors is None:
        return None
    sample = golden.read(vectors)[0]
    found = measure_latency(result.artifact, sample.inputs, old)
    assert found.speedup is not None
    assert found.spread is not None
    return 1 / found.spread[1], 1 / found.speedup, 1 / found.spread[0]


def _change(evidence: Evidence) -> dict[str, float] | None:
    if evidence.baseline is None or not evidence.baseline_bytes:
        return None
    found = {"size": evidence.size_bytes / evidence.baseline_bytes}
    if evidence.ratio is not None:
        found["latency"] = evidence.ratio[1]
    old, new = (each["evaluation"] for each in (evidence.baseline, evidence.report))
    if old is not None and new is not None and old["metric"] == new["metric"]:
        found["accuracy"] = new["after"] - old["after"]
    return {name: float(f"{value:.4g}") for name, value in found.items()}
