"""OpenVINO itself: loaded when it is needed, with the settings under which an IR computes what it says."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from convertkit.errors import MissingFramework, ToolError
from convertkit.telemetry import as_in_ci

EXACT: Mapping[str, str] = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
"""Without them the CPU plugin computes float32 models in bfloat16 where the CPU has it, and quantizes activations that
meet integer weights on the fly."""

_NOISE = re.compile(
    r"^(Exception from |Check '|FrontEnd API failed|Summary:|Model wasn't fully converted|While validating |"
    r"Conversion is failed for)"
)


def openvino() -> Any:
    """The module; ``MissingFramework`` where it is not installed."""
    try:
        with as_in_ci():
            import openvino as module
    except ModuleNotFoundError as error:
        raise MissingFramework("openvino", "openvino") from error
    return module


def runtime_name() -> str:
    """The runtime, its version, and which plugin runs here."""
    try:
        return f"OpenVINO {version('openvino')}, CPU plugin"
    except PackageNotFoundError:  # built from source
        return "OpenVINO, CPU plugin"


def read_ir(path: Path) -> Any:
    """The model at ``path``, an IR or ONNX; ``ToolError`` where OpenVINO does not take it."""
    with told(f"OpenVINO does not read {path.name}"):
        return openvino().Core().read_model(path)


def compiled(path: Path, settings: Mapping[str, str]) -> Any:
    """``path`` compiled for the CPU; ``ToolError`` where the plugin does not take it."""
    with told(f"OpenVINO does not compile {path.name}"):
        core = openvino().Core()
        return core.compile_model(core.read_model(path), "CPU", dict(settings))


@contextmanager
def told(what: str) -> Iterator[None]:
    """Raise what OpenVINO raises as ``ToolError``, in one sentence that begins with ``what``."""
    try:
        yield
    except (RuntimeError, ValueError, TypeError) as error:
        raise ToolError(f"{what}: {brief(error)}") from error


def brief(error: Exception) -> str:
    """The reason in an error of OpenVINO, without the places in its source."""
    lines = [line.strip().removeprefix("-- ") for line in str(error).splitlines() if line.strip()]
    said = [line.replace(" with a message:", ":") for line in lines if not _NOISE.match(line)] or lines
    return "; ".join(said).replace(":; ", ": ")[:400] or type(error).__name__
