"""Rounding to integers that a value has been rounded to already: a transpose stood between that the layout took away.

before:  x:i8 → Dequantize → Quantize → y:i8, with the same scale and zero point
after:   x:i8

before:  x:i8 → Dequantize → Quantize → y:u8, with the same scale and a zero point that is 128 larger
after:   x:i8 → Quantize → y:u8, which moves each integer by 128: an interface of bytes without sign
"""

from __future__ import annotations

import onnx_ir as ir

from convertkit.onnx.edit import bypass
from convertkit.targets.forms.edits import can_drop, drop_if_unused
from convertkit.targets.tflite.annotations import OWN, quantization_of
from convertkit.targets.tflite.passes.part import Part

_HALF = 128


def drop_repeated_rounding(part: Part) -> None:
    """Remove every Quantize that changes nothing, and the floats in front of those that move integers, in place."""
    for node in list(part.graph):
        if (node.domain, node.op_type) != (OWN, "Quantize") or node.inputs[0] is None:
            continue
        maker, result = node.inputs[0].producer(), node.outputs[0]
        if maker is None or (maker.domain, maker.op_type) != (OWN, "Dequantize") or maker.inputs[0] is None:
            continue
        source = maker.inputs[0]
        same = source.dtype == result.dtype and quantization_of(source) == quantization_of(result)
        if source.const_value is not None:
            continue
        if same and can_drop(node, source):
            bypass(node, source)
            drop_if_unused(maker)
        elif _is_moved(source, result):
            node.replace_input_with(0, source)
            drop_if_unused(maker)


def _is_moved(signed: ir.Value, unsigned: ir.Value) -> bool:
    """Whether the second holds the same reals as bytes without sign."""
    before, after = quantization_of(signed), quantization_of(unsigned)
    if before is None or after is None or (signed.dtype, unsigned.dtype) != (ir.DataType.INT8, ir.DataType.UINT8):
        return False
    points = tuple(point + _HALF for point in before.zero_point)
    return (before.scale, points, before.axis) == (after.scale, after.zero_point, None)
