"""What we use of TensorFlow and tf2onnx that their documentation does not promise, each with a test.

Imports both, therefore only ever imported in a worker process.  Where a new version moves or changes one of these,
``tests/converters/tensorflow/test_compat.py`` names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorflow.compiler.mlir.tensorflow_to_stablehlo.python import pywrap_tensorflow_to_stablehlo
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2
from tf2onnx.handler import tf_op
from tf2onnx.onnx_opset.controlflow import Select
from tf2onnx.onnx_opset.nn import CropAndResize, ExtractImagePatches, Resize
from tf2onnx.onnx_opset.tensor import MatrixDiag, NonMaxSuppression
from tf2onnx.utils import map_onnx_to_numpy_type

__all__ = [
    "CropAndResize", "ExtractImagePatches", "MatrixDiag", "NonMaxSuppression", "Resize",
    "Select", "numpy_type", "stablehlo_of", "tf_op", "with_constants",
]  # fmt: skip


def with_constants(function: Any) -> Any:
    """A concrete function with its variables as constants and its calls inlined, control flow as it is."""
    return convert_variables_to_constants_v2(function, lower_control_flow=False, aggressive_inlining=True)


def stablehlo_of(path: str, signature: str, tags: Sequence[str], sizes: str) -> bytes:
    """A SavedModel's signature as a portable StableHLO module; raises what TensorFlow's bridge raises.

    ``sizes`` are those of the inputs, with commas between them, and colons between the inputs.
    """
    module: bytes = pywrap_tensorflow_to_stablehlo.savedmodel_to_stablehlo(path, [signature], list(tags), sizes)
    return module


def numpy_type(dtype: int) -> Any:
    """NumPy's class for an element type of ONNX."""
    return map_onnx_to_numpy_type(dtype)
