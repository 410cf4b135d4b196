"""Sizes are asked of what is stored: reading them from the float value would keep its DEQUANTIZE alive."""

from __future__ import annotations

from convertkit.targets.tflite.marks import OWN
from convertkit.targets.tflite.passes.part import Part


def ask_integers(part: Part) -> None:
    """Let Shape and Size read the integers in front of a Dequantize, in place."""
    for node in part.graph:
        if node.op_type not in ("Shape", "Size") or node.domain != "":
            continue
        value = node.inputs[0]
        widened = None if value is None else value.producer()
        if widened is not None and (widened.domain, widened.op_type) == (OWN, "Dequantize"):
            node.replace_input_with(0, widened.inputs[0])
