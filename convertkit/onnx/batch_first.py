"""A model with recurrent operators whose batch comes first as one that ONNX Runtime executes."""

from __future__ import annotations

from pathlib import Path

import onnxruntime as ort
from onnx_ir.passes.common import NameFixPass

from convertkit.onnx.canonical import MAX_IR_VERSION
from convertkit.onnx.load import load_model
from convertkit.onnx.save import serialized
from convertkit.onnx.steps_first import put_steps_first


def session(path: Path, options: ort.SessionOptions) -> ort.InferenceSession | None:
    """For the file at ``path`` with its recurrent operators steps first; None where it has none with the batch first.

    Raises what ONNX Runtime raises.
    """
    model = load_model(path)
    if not put_steps_first(model):
        return None
    model.ir_version = min(model.ir_version, MAX_IR_VERSION)
    NameFixPass()(model)  # ONNX Runtime wants names of nodes to differ
    return ort.InferenceSession(b"".join(serialized(model)), options, providers=["CPUExecutionProvider"])
