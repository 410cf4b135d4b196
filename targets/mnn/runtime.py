"""What converts to and runs ``.mnn`` files: its name, its version, and the worker that holds it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version

SERVICE = "convertkit.targets.mnn.service:MnnService"

SETTINGS: Mapping[str, str | int] = {"backend": "CPU", "precision": "high", "memory": "normal", "numThread": 1}
WINOGRAD = (3, 0)
"""The hint ``WINOGRAD_MEMORY_LEVEL`` and its value: at 3, MNN's own, convolutions are 1e-3 off, at 0 1e-6."""


def runtime_name() -> str:
    """The runtime with its version."""
    return f"MNN {version('mnn')}"
