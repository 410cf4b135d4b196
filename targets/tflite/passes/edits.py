"""Small graph edits that passes share, with names, shapes and types kept in order."""

from __future__ import annotations

import onnx_ir as ir

from convertkit.onnx.edit import bypass
from convertkit.targets.forms.edits import can_drop
from convertkit.targets.tflite.passes.part import Part


def is_weight(value: ir.Value | None) -> bool:
    """Whether ``value`` is an initializer, or one behind Dequantize or Cast: known when the model is converted."""
    if value is None:
        return False
    if value.const_value is not None:
        return True
    node = value.producer()
    if node is None or (node.domain, node.op_type) not in (("convertkit.tflite", "Dequantize"), ("", "Cast")):
        return False
    return node.inputs[0] is not None and node.inputs[0].const_value is not None


def drop_identities(part: Part) -> None:
    """Remove Identity nodes, in place; one between an input and an output stays."""
    for node in list(part.graph):
        source = node.inputs[0] if node.inputs else None
        if node.op_type == "Identity" and node.domain == "" and source is not None and can_drop(node, source):
            bypass(node, source)
