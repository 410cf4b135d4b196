"""Imports that every export comes to need, done while a source's worker imports its framework.

They cost about half a second, as much as all else that the parent does for a small model.
"""

from __future__ import annotations

import importlib

from convertkit import plugins
from convertkit.recipe import ExportOptions
from convertkit.stage import PreparedTarget

_LATE = (
    "convertkit.onnx.canonical",  # before onnxscript: it keeps sympy out
    "onnxscript.optimizer",
    "convertkit.onnx.runner",
    "convertkit.roads",
    "convertkit.show",
)
"""Imported where they are first used, so that commands which do not come to that start fast."""


def prepare(options: ExportOptions) -> None:
    """Import what the rest of this export needs."""
    for name in _LATE:
        importlib.import_module(name)
    for name in options.targets:
        target = plugins.target(name)
        if isinstance(target, PreparedTarget):
            target.prepare()
