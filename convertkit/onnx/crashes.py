"""Files at whose loading ONNX Runtime ends the process, which no exception tells: asked in a process of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import onnx

from convertkit.workers.programs import run_to_end

_LOAD = """
import sys, onnxruntime
options = onnxruntime.SessionOptions()
options.log_severity_level = 4
onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
"""
_TOLD = (0, 1)
"""What Python ends with: loaded, or an exception."""


def ends_the_process(path: Path) -> bool:
    """Whether loading the file as users do ends the process.

    Asked where float16 weights are computed with, since ONNX Runtime 1.31.1 does so for products of a transposed value:
    its NCHWc pass behind ``FuseFp16InitializerToFp32NodeTransformer``.
    """
    if path.suffix != ".onnx" or not _computes_in_half(path):
        return False
    return run_to_end([sys.executable, "-P", "-c", _LOAD, str(path)]).returncode not in _TOLD


def _computes_in_half(path: Path) -> bool:
    graph = onnx.load_model(path, load_external_data=False).graph
    halves = {value.name for value in graph.initializer if value.data_type == onnx.TensorProto.FLOAT16}
    return any(name in halves for node in graph.node if node.op_type != "Cast" for name in node.input)
