"""ONNX models of the caller's own process, saved as files that the converter reads."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from convertkit.errors import SourceError

_MOST_IN_ONE_FILE = (1 << 31) - 1
"""Bytes that protobuf can write at once."""


def saved_live(model: object, folder: Path) -> Path | None:
    """``model`` as ``<its graph's name>.onnx`` in ``folder``; None where it is not an ONNX model.

    Takes ``onnx.ModelProto``, ``onnx_ir.Model`` and objects with one of these as their ``model_proto`` or ``model``
    (``torch.onnx.ONNXProgram``).  Raises ``SourceError`` where it cannot be written.
    """
    proto = _proto(model)
    if proto is None:
        return None
    import onnx

    path = folder / f"{_name(proto.graph.name)}.onnx"
    try:
        apart = proto.ByteSize() > _MOST_IN_ONE_FILE
        onnx.save_model(proto, path, save_as_external_data=apart, location=f"{path.stem}.data")
    except (ValueError, OSError) as error:
        raise SourceError(f"the given ONNX model cannot be written as a file: {error}") from error
    return path


def _proto(model: object) -> Any:
    """The protobuf message, None for what is not an ONNX model; asks only libraries that are imported already."""
    onnx, onnx_ir = sys.modules.get("onnx"), sys.modules.get("onnx_ir")
    if onnx is not None and isinstance(model, onnx.ModelProto):
        copy = onnx.ModelProto()
        copy.CopyFrom(model)  # saving large weights beside the model would empty the caller's
        return copy
    if onnx_ir is not None and isinstance(model, onnx_ir.Model):
        return onnx_ir.to_proto(model)
    if type(model).__name__ == "ONNXProgram":
        return getattr(model, "model_proto", None)
    return None


def _name(graph: str) -> str:
    return re.sub(r"[^\w.-]+", "_", graph).strip("._-")[:60] or "model"
