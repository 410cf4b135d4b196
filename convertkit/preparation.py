"""What every export comes to need, imported and compiled while a source's worker imports its framework.

It costs about half a second, as much as all else that the parent does for a small model.
"""

from __future__ import annotations

import importlib

from convertkit import plugins
from convertkit.recipe import ExportOptions
from convertkit.stage import PreparedTarget

_LATE = (
    "convertkit.onnx.canonical",
    "convertkit.onnx.optimizer",
    "onnx.reference.ops",  # which the optimizer puts off; what exporters write has constants to compute
    "convertkit.onnx.runner",
    "convertkit.early",
    "convertkit.roads",
    "convertkit.show",
)
"""Imported where they are first used, so that commands which do not come to that start fast."""


def prepare(options: ExportOptions) -> None:
    """Import what the rest of this export needs, and make what does not depend on it."""
    for name in _LATE:
        importlib.import_module(name)
    from convertkit.report import build, html

    html.page()
    build.environment()
    for name in options.targets:
        target = plugins.target(name)
        if isinstance(target, PreparedTarget):
            target.prepare()
