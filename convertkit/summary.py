"""What ``--json`` prints: one object however a command ends, as ``summary.schema.json`` describes it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

from convertkit import __version__

if TYPE_CHECKING:
    from convertkit.job import Outcome

SCHEMA = 1
_WAY_OUT = "  try   "


def schema() -> dict[str, Any]:
    """The JSON schema (draft 2020-12) that every object of ``--json`` fulfils."""
    text = resources.files("convertkit").joinpath("summary.schema.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def summary(
    command: str, exit_code: int, error: Mapping[str, Any] | None, outcomes: Sequence[Outcome] = (), **more: object
) -> dict[str, Any]:
    """How a command ended: ``more`` is what it lists, ``outcomes`` what became of each target of an export."""
    return {
        "schema": SCHEMA,
        "convertkit": __version__,
        "command": command,
        "exit_code": exit_code,
        "passed": exit_code == 0,
        "error": error,
        "targets": [_target(each) for each in outcomes],
        **more,
    }


def described(kind: str, message: str) -> dict[str, Any]:
    """An error: its class, what it says, and the ways out that it names."""
    lines = message.splitlines()
    said = "\n".join(line for line in lines if not line.startswith(_WAY_OUT))
    return {
        "kind": kind,
        "message": said,
        "try": [line[len(_WAY_OUT) :] for line in lines if line.startswith(_WAY_OUT)],
    }


def _target(outcome: Outcome) -> dict[str, Any]:
    result, error = outcome.result, outcome.error
    folder = outcome.left if result is None else result.path
    return {
        "target": outcome.target,
        "passed": error is None,
        "folder": None if folder is None else str(folder),
        "artifact": None if result is None else str(result.artifact.path),
        "error": None if error is None else described(type(error).__name__, str(error)),
        "report": outcome.report,
    }
