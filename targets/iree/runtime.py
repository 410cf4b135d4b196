"""What compiles and runs modules: its name, its version, and the worker that holds it."""

from __future__ import annotations

from convertkit.targets.iree.engine import engine

SERVICE = "convertkit.targets.iree.service:IreeService"
ENTRY = "main"
"""The function of a module."""


def runtime_name() -> str:
    """The runtime with its version."""
    return f"IREE {engine.packages['iree-base-runtime']}"
