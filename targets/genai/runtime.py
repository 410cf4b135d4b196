"""ONNX Runtime GenAI itself: loaded when it is needed, its telemetry off."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from convertkit.errors import MissingFramework


def genai() -> Any:
    """The module; ``MissingFramework`` where it is not installed."""
    try:
        import onnxruntime_genai as module
    except ModuleNotFoundError as error:
        raise MissingFramework("onnxruntime-genai", "genai") from error
    module.disable_telemetry_events()
    return module


def genai_name() -> str:
    """With its version, as the report has it."""
    try:
        return f"ONNX Runtime GenAI {version('onnxruntime-genai')}"
    except PackageNotFoundError:
        return "ONNX Runtime GenAI"
