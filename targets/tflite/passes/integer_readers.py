"""What integers answer as well is asked of them: reading the float value would keep a DEQUANTIZE alive.

Sizes are those of what is stored, and the largest element is where the largest integer is.
"""

from __future__ import annotations

import onnx_ir as ir

from convertkit.targets.tflite.marks import OWN, quantization_of
from convertkit.targets.tflite.passes.part import Part


def ask_integers(part: Part) -> None:
    """Let Shape, Size, ArgMax and ArgMin read the integers in front of a Dequantize, in place."""
    for node in part.graph:
        value = node.inputs[0] if node.inputs else None
        widened = None if value is None else value.producer()
        if widened is None or (widened.domain, widened.op_type) != (OWN, "Dequantize") or node.domain != "":
            continue
        integers = widened.inputs[0]
        if node.op_type in ("Shape", "Size") or (node.op_type in ("ArgMax", "ArgMin") and _is_ordered(integers)):
            node.replace_input_with(0, integers)


def _is_ordered(integers: ir.Value | None) -> bool:
    """Whether larger integers are larger numbers, in the one type that the kernel takes."""
    return integers is not None and integers.dtype == ir.DataType.INT8 and _has_one_scale(integers)


def _has_one_scale(integers: ir.Value) -> bool:
    params = quantization_of(integers)
    return params is not None and params.axis is None
