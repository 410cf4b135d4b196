"""The roads from a loaded model to an ONNX file, tried in order of cost (run in forks of the worker)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convertkit.artifact import Array
from convertkit.converters.pytorch import legacy
from convertkit.converters.pytorch.leaves import from_json
from convertkit.converters.pytorch.subject import Subject


def prepare() -> None:
    """Import what the roads through torch.export need."""


def attempt(subject: Subject, params: Mapping[str, Any], feed: Mapping[str, Array]) -> dict[str, Any]:
    """Write the ONNX file of one road to ``params["target"]``; raises whatever the exporter raises."""
    leaves, outputs = from_json(params["leaves"]), list(params["outputs"])
    legacy.export(subject, leaves, outputs, feed, params["target"])
    return {}
