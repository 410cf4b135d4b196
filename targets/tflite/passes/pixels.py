"""Bytes of an input that become floats, by DEQUANTIZE: TensorFlow Lite Micro and XNNPACK have no CAST of bytes.

before:  x: uint8 → Cast → y: float32
after:   x: uint8 of scale 1 and zero point 0 → Dequantize → y: float32, the same numbers
"""

from __future__ import annotations

import onnx_ir as ir

from convertkit.onnx.edit import is_float32
from convertkit.targets.tflite.annotations import OWN, quantization_of, set_quantization
from convertkit.targets.tflite.passes.part import Part
from convertkit.targets.tflite.tensor import QuantParams

_ITSELF = QuantParams.per_tensor(1.0, 0)


def dequantize_bytes(part: Part) -> None:
    """Rewrite the casts of every input whose bytes are read by such alone, in place."""
    for value in part.graph.inputs:
        nodes = [use.node for use in value.uses()]
        if value.dtype == ir.DataType.UINT8 and quantization_of(value) is None and nodes and all(map(_is_cast, nodes)):
            set_quantization(value, _ITSELF)
            for node in nodes:
                node.op_type, node.domain = "Dequantize", OWN
                node.attributes.clear()


def _is_cast(node: ir.Node) -> bool:
    return node.op_type == "Cast" and node.domain == "" and is_float32(node.outputs[0])
