"""What a model in float16 may differ by: TensorFlow rounds every result to it, ONNX Runtime where it has kernels."""

from __future__ import annotations

import onnx_ir as ir

from convertkit.stage import FLOAT32, Tolerance

_HALF = Tolerance("TensorFlow rounds every result to float16, ONNX Runtime where it computes in that", 2.0**-9)


def tolerance_of(model: ir.Model) -> Tolerance:
    """Of a model that TensorFlow's is held against: a few roundings of float16 where any value is of it."""
    values = [*model.graph.inputs, *(value for node in model.graph.all_nodes() for value in node.outputs)]
    return _HALF if any(value.dtype == ir.DataType.FLOAT16 for value in values) else FLOAT32
