"""The worker's side: coremltools, and ONNX lowered with it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from convertkit.artifact import Array
from convertkit.onnx.load import load_own
from convertkit.targets.coreml.imports import import_coremltools
from convertkit.targets.coreml.options import Choices
from convertkit.workers.process import Reply


class CoreMLService:
    """Compiles models; coremltools is imported once."""

    def __init__(self) -> None:
        import_coremltools()

    def compile(self, params: dict[str, Any], arrays: dict[str, Array]) -> Reply:
        """Write ``params["folder"]`` from the model at ``params["model"]``; the reply has the package's interface."""
        from convertkit.targets.coreml.compile import compile_model

        model = load_own(Path(params["model"]))
        compiled = compile_model(model, Choices.read(params["choices"]), Path(params["folder"]))
        return Reply(asdict(compiled))
