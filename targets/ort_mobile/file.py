"""The ``.ort`` file, written by ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import onnxruntime as ort

from convertkit.errors import ToolError
from convertkit.onnx.onnxruntime_compat import ERRORS

_QUIET = 4
_LAYOUT_OF_X86 = "NchwcTransformer"
"""Its blocked layout fits the processor that converts, and Arm has no kernels for it."""


def write_ort(model: Path, path: Path, *, small: bool) -> None:
    """``model`` with the optimisations of the CPU applied, as every processor runs them; ``ToolError`` if it fails.

    ``small`` keeps weights as they are stored: folded, integers would become float32 in the file.
    """
    options = ort.SessionOptions()
    options.log_severity_level = _QUIET
    options.optimized_model_filepath = str(path)
    options.add_session_config_entry("session.save_model_format", "ORT")
    # Products of signed bytes stay as they are: Arm multiplies them as fast as unsigned ones.
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    left_out = [_LAYOUT_OF_X86, *(["ConstantFolding"] if small else [])]
    try:
        ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"], disabled_optimizers=left_out)
    except ERRORS as error:
        reason = str(error).strip().splitlines()[0][:400]
        raise ToolError(f"ONNX Runtime does not write {model.name} as {path.name}: {reason}") from error
