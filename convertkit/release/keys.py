"""By what a finished cell is known in a cache: all that decides its folder, read without opening the model."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from convertkit import plugins
from convertkit.artifact import sha256_of
from convertkit.findings.command import command
from convertkit.recipe import METRICS, ExportOptions
from convertkit.release.cells import Cell
from convertkit.release.memory import GATE
from convertkit.report.jsonable import jsonable
from convertkit.steps import live
from convertkit.steps.describe import Describe
from convertkit.tasks.versions import code_version

_ELSEWHERE = frozenset(
    {"source", "calib", "eval", "label_file", "targets", "output", "force", "keep_failed", "verbose", "timeout_s"}
    | {"jobs", "cache", "scheduler", "target_options"}
)
"""Options that count by their content, or decide nothing."""
_FORM = 3
"""Of what is kept under the key; another number where that changes."""


class Keys:
    """The keys of many cells; what a source and its samples hold is read once for all of them."""

    def __init__(self, golden: int) -> None:
        self._golden = golden
        self._described: dict[str, object] = {}
        self._digests: dict[str, str | None] = {}

    def of(self, cell: Cell) -> str | None:
        """The key of a cell; None where code of the user's decides, which may read anything."""
        options = cell.options
        described = self._source(options)
        data = {name: self._content(getattr(options, name)) for name in ("calib", "eval", "label_file")}
        own_metric = options.metric is not None and options.metric not in METRICS
        if described is None or None in data.values() or own_metric:
            return None
        said = {
            "cell": _FORM,
            "source": described,
            "target": cell.target,
            "options": {field.name: jsonable(getattr(options, field.name)) for field in _of_content(options)},
            "of_target": _of_targets(cell),
            "engines": [live.engine_of(part) for part in plugins.parts_of(plugins.target(cell.target), options)],
            "data": data,
            "command": command(options, cell.target),
            "code": _code(cell),
            "golden": self._golden,
            **({GATE: True} if GATE in cell.gates else {}),
        }
        return hashlib.sha256(json.dumps(said, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

    def _source(self, options: ExportOptions) -> object:
        """What decides how the source is read, its content among it."""
        generated = options.calib is None and not options.static
        name = f"{live.chosen(options, live.SOURCE_OPTIONS)} {generated}"
        if name not in self._described:
            self._described[name] = Describe(options, kept=True).decides()
        return self._described[name]

    def _content(self, data: object) -> str | None:
        """The digest of a file or folder, empty without one; None for what is not a path."""
        if data is None:
            return ""
        if not isinstance(data, str) or not Path(data).exists():
            return None
        if data not in self._digests:
            self._digests[data] = sha256_of(Path(data))
        return self._digests[data]


def _of_content(options: ExportOptions) -> list[Any]:
    return [field for field in fields(options) if field.name not in _ELSEWHERE]


def _of_targets(cell: Cell) -> object:
    """What is given for the options that the target, and those which it packages, bring; files by their content."""
    return {
        target: {str(name): [_value(each) for each in _listed(value)] for name, value in given.items()}
        for target, given in cell.options.target_options.items()
    }


def _listed(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _value(value: object) -> object:
    if isinstance(value, str | Path) and Path(value).is_file():
        return sha256_of(Path(value))
    return str(value)


def _code(cell: Cell) -> list[str]:
    """The version of the code of all plugins that may take part."""
    parts = plugins.parts_of(plugins.target(cell.target), cell.options)
    taking_part = (*plugins.converters(), *plugins.passes(), *parts)
    return sorted({code_version(live.package_of(each)) for each in taking_part})
