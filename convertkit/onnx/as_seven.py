"""A model of opset 1 to 6 as one that ONNX Runtime executes, whose operators begin at opset 7."""

from __future__ import annotations

from pathlib import Path

import onnxruntime as ort
from onnx_ir.passes.common import NameFixPass

from convertkit.errors import Unsupported
from convertkit.onnx.canonical import MAX_IR_VERSION
from convertkit.onnx.load import load_model
from convertkit.onnx.older import SEVEN, to_seven
from convertkit.onnx.save import serialized


def session(path: Path, options: ort.SessionOptions) -> ort.InferenceSession | None:
    """For the file at ``path`` written as opset 7; None where it is not older, or has what opset 7 does not.

    Raises what ONNX Runtime raises.
    """
    model = load_model(path)
    if model.graph.opset_imports.get("", SEVEN) >= SEVEN:
        return None
    try:
        to_seven(model)
    except Unsupported:
        return None
    model.ir_version = min(model.ir_version, MAX_IR_VERSION)
    NameFixPass()(model)  # ONNX Runtime wants names of nodes to differ
    return ort.InferenceSession(b"".join(serialized(model)), options, providers=["CPUExecutionProvider"])
