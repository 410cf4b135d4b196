"""The folder of one target: the artifact, its manifest, the report."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convertkit import manifest
from convertkit.artifact import Artifact
from convertkit.budget import Point
from convertkit.errors import ParityError
from convertkit.findings.values import Findings
from convertkit.recipe import ExportOptions
from convertkit.records import Evaluation, StepRecord
from convertkit.report import build as report_build
from convertkit.report.jsonable import dumps
from convertkit.stage import FeedSource
from convertkit.text import NOT_VERIFIED


@dataclass(frozen=True, slots=True)
class Finished:
    """A folder that is ready to be delivered, or the report of why there is nothing to deliver."""

    target: str
    folder: Path
    artifact: Artifact
    report: Mapping[str, Any]
    failure: ParityError | None


@dataclass(frozen=True, slots=True)
class Ending:
    """What an export to one target has come to."""

    options: ExportOptions
    target: str
    source: Artifact
    artifact: Artifact
    steps: Sequence[StepRecord]
    evaluation: Evaluation | None
    found: Findings
    calibration: FeedSource | None
    labelled: FeedSource | None
    notes: Sequence[str]
    failure: ParityError | None
    trade_off: Sequence[Point] = ()


def reported(end: Ending) -> dict[str, Any]:
    """The report."""
    data = {"calibration": end.calibration, "evaluation": end.labelled}
    notes, failure = (*end.notes, *_waived(end.steps)), str(end.failure or "")
    return report_build.build(
        end.source, end.target, end.options, end.steps, end.evaluation, end.found, data, notes, failure,
        end.trade_off,
    )  # fmt: skip


def finished(end: Ending, report: Mapping[str, Any], page: str, folder: Path, *, keep: bool) -> Finished:
    """Write the new ``folder``; the artifact comes with it where nothing failed, or the user wants to see it.

    ``page`` shows ``report`` in HTML.
    ``keep`` leaves the artifact's files where they are, too: others may need them.
    """
    folder.mkdir(parents=True)
    options, failure, artifact = end.options, end.failure, end.artifact
    if failure is None or options.keep_failed:
        artifact = _brought(artifact, folder, keep=keep)
    if failure is None:
        made = manifest.build(folder, artifact, end.source, end.target, options, end.calibration, end.found.effective)
        _write_json(folder / "manifest.json", made)
    _write_json(folder / "report.json", report)
    (folder / "report.html").write_text(page, encoding="utf-8")
    return Finished(end.target, folder, artifact, report, failure)


def _waived(steps: Sequence[StepRecord]) -> tuple[str, ...]:
    """What ``--allow-unverified`` let pass, for the report."""
    reports = (report for step in steps for report in (step.versus_previous, step.versus_source))
    found = dict.fromkeys(report.unproven for report in reports if report.waived and report.unproven)
    return tuple(f"{NOT_VERIFIED}: {text}" for text in found)


def _brought(artifact: Artifact, folder: Path, *, keep: bool) -> Artifact:
    """Everything that the last stage wrote, in ``folder``: as the same files, or as copies of what is kept."""
    for entry in sorted(artifact.path.parent.iterdir()):
        _put(entry, folder / entry.name, keep=keep)
    state = artifact.initial_state
    if state is not None and not (folder / state.name).exists():
        shutil.copyfile(state, folder / state.name)
    moved_state = None if state is None else folder / state.name
    return dataclasses.replace(artifact, path=folder / artifact.path.name, initial_state=moved_state)


def _put(entry: Path, to: Path, *, keep: bool) -> None:
    copy = shutil.copyfile if keep else os.link
    if entry.is_dir():
        shutil.copytree(entry, to, copy_function=copy)
    else:
        copy(entry, to)


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(dumps(value), encoding="utf-8")
