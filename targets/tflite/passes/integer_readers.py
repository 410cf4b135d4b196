"""What integers answer as well is asked of them: reading the float value would keep a DEQUANTIZE alive.

Sizes are those of what is stored, and the largest element is where the largest integer is.
"""

from __future__ import annotations

import onnx_ir as ir

from convertkit.targets.tflite.annotations import OWN, quantization_of
from convertkit.targets.tflite.passes.part import Part


def ask_integers(part: Part) -> None:
    """Let Shape, Size, ArgMax and ArgMin read integers that stand beside a float value, in place."""
    moved = [node for node in tuple(part.graph) if node.domain == "" and _move(node)]
    if moved:
        part.graph.sort()  # the Quantize that is read now may have stood behind


def _move(node: ir.Node) -> bool:
    value = node.inputs[0] if node.inputs else None
    if value is None or node.op_type not in ("Shape", "Size", "ArgMax", "ArgMin"):
        return False
    integers = _beside(value)
    if integers is None or (node.op_type in ("ArgMax", "ArgMin") and not _is_exact(value, integers)):
        return False
    node.replace_input_with(0, integers)
    return True


def _beside(value: ir.Value) -> ir.Value | None:
    """The integers that ``value`` was widened from, else those that it is quantized to."""
    maker = value.producer()
    if maker is not None and (maker.domain, maker.op_type) == (OWN, "Dequantize"):
        return maker.inputs[0]
    readers = (use.node for use in value.uses())
    return next((node.outputs[0] for node in readers if (node.domain, node.op_type) == (OWN, "Quantize")), None)


def _is_exact(value: ir.Value, integers: ir.Value) -> bool:
    """Whether the integers hold all that the value does, in order: it is they, widened."""
    maker = value.producer()
    return maker is not None and maker.inputs[0] is integers and _is_ordered(integers)


def _is_ordered(integers: ir.Value) -> bool:
    """Whether larger integers are larger numbers, in the one type that the kernel takes."""
    return integers.dtype == ir.DataType.INT8 and _has_one_scale(integers)


def _has_one_scale(integers: ir.Value) -> bool:
    params = quantization_of(integers)
    return params is not None and params.axis is None
