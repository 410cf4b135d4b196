"""What ONNX Runtime's optimiser makes of a model."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnxruntime


def executed(model: bytes | Path, folder: Path) -> list[str]:
    """The operators that ONNX Runtime makes of the model."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    options.log_severity_level = 3  # a warning says that the file suits this machine only
    onnxruntime.InferenceSession(model, options)
    return [node.op_type for node in onnx.load(options.optimized_model_filepath).graph.node]
