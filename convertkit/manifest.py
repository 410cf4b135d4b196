"""``manifest.json``: what is in an output folder and how it was made; the same run writes the same bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from convertkit import __version__, plugins
from convertkit.artifact import Artifact, files_of, sha256_of
from convertkit.findings.precision import Effective
from convertkit.recipe import ExportOptions
from convertkit.report.build import describe, packaged_options
from convertkit.report.jsonable import jsonable
from convertkit.stage import FeedSource
from convertkit.target_options import texts

SCHEMA = 1
_NOT_CONTENT = frozenset(
    {
        "measured",
        "output",
        "force",
        "keep_failed",
        "verbose",
        "timeout_s",
        "targets",
        "calib",
        "eval",
        "source",
        "label_file",
        "jobs",
        "cache",
        "scheduler",
        "target_options",
    }
)


def build(
    folder: Path,
    artifact: Artifact,
    source: Artifact,
    target: str,
    options: ExportOptions,
    calibration: FeedSource | None,
    effective: Effective | None,
) -> dict[str, Any]:
    """The manifest of ``folder``, which holds the deliverable and nothing else yet."""
    return {
        "schema": SCHEMA,
        "convertkit": __version__,
        "target": target,
        "artifact": describe(artifact, artifact.size_bytes),
        "source": describe(source, source.size_bytes),
        "precision": None if effective is None else jsonable(effective),
        "options": _choices(options),
        "target_options": texts(plugins.target(target), options),
        "packaged_options": packaged_options(target, options),
        "calibration": _data(calibration),
        "labels": None if options.label_file is None else {"sha256": sha256_of(Path(options.label_file))},
        "initial_state": _initial_state(artifact),
        "files": {
            file.relative_to(folder).as_posix(): {"sha256": _digest(file, artifact), "bytes": file.stat().st_size}
            for file in files_of(folder)
        },
    }


def _digest(file: Path, artifact: Artifact) -> str:
    """The pipeline has held the artifact's own digest against the file: weights need not be read once more."""
    return artifact.sha256 if file == artifact.path else sha256_of(file)


def _choices(options: ExportOptions) -> dict[str, Any]:
    names = [field.name for field in fields(options) if field.name not in _NOT_CONTENT]
    return {name: jsonable(getattr(options, name)) for name in names}


def _data(source: FeedSource | None) -> Mapping[str, Any] | None:
    if source is None:
        return None
    return {"samples": len(source), "sha256": source.sha256}


def _initial_state(artifact: Artifact) -> dict[str, Any]:
    if artifact.initial_state is None:
        return {}
    import numpy as np

    shapes = {spec.name: spec.source_shape for spec in artifact.inputs}
    with np.load(artifact.initial_state, allow_pickle=False) as stored:
        return {
            name: {
                # of the input; the file has size 1 along what is dynamic, to be repeated
                "shape": list(shapes[name]),
                "dtype": stored[name].dtype.name,
                "all_zero": not stored[name].any(),
                "file": artifact.initial_state.name,
            }
            for name in stored.files
        }
