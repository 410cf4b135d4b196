"""Rounding to integers that a value has been rounded to already: a transpose stood between that the layout took away.

before:  x:i8 → Dequantize → Quantize → y:i8, with the same scale and zero point
after:   x:i8
"""

from __future__ import annotations

from convertkit.onnx.edit import bypass
from convertkit.targets.forms.edits import can_drop, drop_if_unused
from convertkit.targets.tflite.annotations import OWN, quantization_of
from convertkit.targets.tflite.passes.part import Part


def drop_repeated_rounding(part: Part) -> None:
    """Remove every Quantize that changes nothing, in place."""
    for node in list(part.graph):
        if (node.domain, node.op_type) != (OWN, "Quantize") or node.inputs[0] is None:
            continue
        maker, result = node.inputs[0].producer(), node.outputs[0]
        if maker is None or (maker.domain, maker.op_type) != (OWN, "Dequantize") or maker.inputs[0] is None:
            continue
        source = maker.inputs[0]
        same = source.dtype == result.dtype and quantization_of(source) == quantization_of(result)
        if same and source.const_value is None and can_drop(node, source):
            bypass(node, source)
            drop_if_unused(maker)
