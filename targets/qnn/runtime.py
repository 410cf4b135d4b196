"""What compiles and simulates: its name, its version and the worker that holds it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

SERVICE = "convertkit.targets.qnn.service:QnnService"


def runtime_name() -> str:
    """The execution provider, with its version."""
    try:
        return f"onnxruntime-qnn {version('onnxruntime-qnn')}"
    except PackageNotFoundError:
        return "onnxruntime-qnn"
