"""Transposes that the layout puts between an operator of integers and its pairs move the integers themselves.

before:  x:i8 → Dequantize → Transpose → Reshape → Quantize → y:i8
after:   x:i8 → Transpose → Dequantize → Reshape → Quantize → y:i8, of which a QDQ group is made

before:  x:i8 → Dequantize → Reshape → Transpose → Quantize → y:i8
after:   x:i8 → Dequantize → Reshape → Quantize → Transpose → y:i8
"""

from __future__ import annotations

import onnx_ir as ir

from convertkit.targets.forms.edits import drop_if_unused, typed
from convertkit.targets.forms.source import set_source
from convertkit.targets.tflite.annotations import OWN, quantization_of, set_quantization
from convertkit.targets.tflite.passes.part import Part


def move_integers(part: Part) -> None:
    """Transpose in front of the Dequantize wherever only operators of integers read the result, in place.

    And behind the Quantize of what an operator makes that reads integers.
    """
    for node in list(part.graph):
        if (quantize := _quantize_behind(node)) is not None:
            _swap_with_quantize(part.graph, node, quantize)
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


def _quantize_behind(node: ir.Node) -> ir.Node | None:
    """The one Quantize that reads a Transpose of what an operator of integers makes for it alone."""
    if node.domain or node.op_type != "Transpose" or node.outputs[0].is_graph_output() or node.inputs[0] is None:
        return None
    maker, users = node.inputs[0].producer(), [use.node for use in node.outputs[0].uses()]
    if maker is None or maker.domain == OWN or len(node.inputs[0].uses()) != 1 or node.inputs[0].is_graph_output():
        return None
    first = maker.inputs[0].producer() if maker.inputs and maker.inputs[0] is not None else None
    if first is None or (first.domain, first.op_type) != (OWN, "Dequantize") or len(users) != 1:
        return None
    quantize = users[0]
    is_plain = (quantize.domain, quantize.op_type) == (OWN, "Quantize") and not quantize.outputs[0].is_graph_output()
    params = quantization_of(quantize.outputs[0]) if is_plain else None
    return quantize if params is not None and params.axis is None else None


def _swap_with_quantize(graph: ir.Graph | ir.Function, node: ir.Node, quantize: ir.Node) -> None:
    """Let ``quantize`` read what ``node`` moves, and ``node`` move the integers."""
    real, moved, integers = node.inputs[0], node.outputs[0], quantize.outputs[0]
    params = quantization_of(integers)
    assert real is not None
    assert params is not None
    quantize.replace_input_with(0, real)
    integers.replace_all_uses_with(moved)
    node.replace_input_with(0, integers)
    typed(moved, moved.shape, integers.dtype)
    typed(integers, real.shape, integers.dtype)
    set_quantization(moved, params)
    graph.remove(quantize)
    graph.insert_before(node, quantize)


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
