"""Transposes that the layout puts between a Dequantize and an operator of integers move the integers themselves.

before:  x:i8 → Dequantize → Transpose → Reshape → Quantize → y:i8
after:   x:i8 → Transpose → Dequantize → Reshape → Quantize → y:i8, of which a QDQ group is made
"""

from __future__ import annotations

import onnx_ir as ir

from convertkit.targets.forms.edits import drop_if_unused, typed
from convertkit.targets.forms.source import set_source
from convertkit.targets.tflite.annotations import OWN, quantization_of, set_quantization
from convertkit.targets.tflite.passes.part import Part


def move_integers(part: Part) -> None:
    """Transpose in front of the Dequantize wherever only operators of integers read the result, in place."""
    for node in list(part.graph):
        if node.domain or node.op_type != "Transpose" or node.outputs[0].is_graph_output():
            continue
        real = node.inputs[0].producer() if node.inputs[0] is not None else None
        if real is None or (real.domain, real.op_type) != (OWN, "Dequantize") or not _is_read_by_qdq_groups(node):
            continue
        source = real.inputs[0]
        params = None if source is None else quantization_of(source)
        if source is not None and params is not None and params.axis is None:
            _swap(part.graph, node, real, source)
            drop_if_unused(real)


def _is_read_by_qdq_groups(node: ir.Node) -> bool:
    """Whether every reader's results all become integers."""
    readers = [use.node for use in node.outputs[0].uses()]
    made = [value for reader in readers for value in reader.outputs]
    users = [use.node for value in made for use in value.uses()]
    whole = all((user.domain, user.op_type) == (OWN, "Quantize") for user in users)
    return bool(users) and whole and not any(value.is_graph_output() for value in made)


def _swap(graph: ir.Graph | ir.Function, node: ir.Node, real: ir.Node, source: ir.Value) -> None:
    """Let ``node`` move ``source``, and a Dequantize behind it make reals of that."""
    moved, params = node.outputs[0], quantization_of(source)
    assert params is not None
    behind = ir.node("Dequantize", [moved], domain=OWN, name=f"{node.name}/dequantize")
    set_source(behind, real)
    result = behind.outputs[0]
    result.name = f"{moved.name}/dequantized"
    typed(result, moved.shape, moved.dtype)
    moved.replace_all_uses_with(result)
    behind.replace_input_with(0, moved)
    node.replace_input_with(0, source)
    typed(moved, moved.shape, source.dtype)
    set_quantization(moved, params)
    graph.insert_after(node, behind)
