"""ONNX in the forms that XNNPACK's partitioner takes, in place; what is computed stays the same.

It looks for ``weight → dequantize → linear`` with a weight of (outputs, inputs), for biases that are stored as floats,
and for a DequantizeLinear of its own in front of every operator.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from convertkit.artifact import Array
from convertkit.onnx.edit import add_constant, replaced
from convertkit.targets.forms.pool_pads import state_average

LINEAR = "Linear"
"""Of this target's table alone: x, a weight of (outputs, inputs), a bias or none."""
CONVERSIONS = frozenset({"QuantizeLinear", "DequantizeLinear"})
_REDUCTIONS = {f"Reduce{kind}": (1,) for kind in ("Mean", "Sum", "Max", "Min", "Prod")}
FIXED: Mapping[str, tuple[int, ...]] = {
    "Reshape": (1,), "Expand": (1,), "Squeeze": (1,), "Unsqueeze": (1,), "Split": (1,), "Slice": (1, 2, 3, 4),
    "Pad": (1, 2, 3), "Tile": (1,), "Clip": (1, 2), "Trilu": (1,),
    "CumSum": (1,), "ConstantOfShape": (0,), "QuantizeLinear": (1, 2), "DequantizeLinear": (1, 2), **_REDUCTIONS,
}  # fmt: skip
"""Inputs that are arguments of the program and not tensors in it."""


def prepare(model: ir.Model) -> None:
    """All of the forms."""
    graph = model.graph
    for node in tuple(graph):
        _store_bias(node)
        _round_down(node)
    for node in tuple(graph):
        _make_linear(node)
    RemoveUnusedNodesPass()(model)
    for node in tuple(graph):
        if node.op_type == "DequantizeLinear" and not node.domain:
            _repeat(graph, node)
    for node in tuple(graph):
        _make_weight_real(graph, node)
    RemoveUnusedNodesPass()(model)
    for node in tuple(graph):
        _give_zero_points(graph, node)
        _own_arguments(graph, node)


def _round_down(node: ir.Node) -> None:
    """What ``ceil_mode`` adds to a mean is padding that does not count."""
    if node.op_type == "AveragePool" and not node.domain:
        state_average(node)
        if not node.attributes.get_int("ceil_mode", 0):
            node.attributes.pop("ceil_mode", None)


def _store_bias(node: ir.Node) -> None:
    """A stored int32 behind DequantizeLinear is the float that it stands for."""
    if node.op_type != "DequantizeLinear" or node.domain or node.graph is None:
        return
    arrays = [_array(value) for value in node.inputs]
    if arrays[0] is None or arrays[0].dtype != np.int32 or any(each is None for each in arrays[1:]):
        return
    stored, scale = arrays[0], arrays[1]
    assert scale is not None
    zero = arrays[2] if len(arrays) > 2 and arrays[2] is not None else np.int32(0)
    axis = node.attributes.get_int("axis", 1)
    shape = [-1 if place == axis % max(stored.ndim, 1) else 1 for place in range(stored.ndim)]
    spread = [each.reshape(shape) if each.size > 1 else each.reshape(()) for each in (scale, np.asarray(zero))]
    real = ((stored - spread[1]).astype(np.float32) * spread[0]).astype(np.float32)
    made = add_constant(node.graph, f"{node.outputs[0].name}_stored", real)
    node.outputs[0].replace_all_uses_with(made, replace_graph_outputs=False)


def _make_linear(node: ir.Node) -> None:
    """``Gemm`` and ``MatMul`` with a stored weight of two axes, the sum behind a MatMul included."""
    if node.domain or node.op_type not in ("Gemm", "MatMul"):
        return
    data, weight, *others = node.inputs
    if data is None or weight is None:
        return
    ones = all(node.attributes.get_float(name, 1.0) == 1.0 for name in ("alpha", "beta"))
    if not ones or node.attributes.get_int("transA", 0) != 0:
        return
    bias = others[0] if others else None
    if bias is not None and (_array(bias) is None or len(bias.shape or ()) != 1):
        return
    turned = weight if node.attributes.get_int("transB", 0) == 1 else _turned(weight)
    if turned is None or _stored(turned) is None:
        return
    last, plus = node, _sum_behind(node) if bias is None and node.op_type == "MatMul" else None
    if plus is not None:
        last, bias = plus
    made = replaced(last, LINEAR, [data, turned, *([] if bias is None else [bias])])
    if last is not node and node.graph is not None:
        made.name = node.name or made.name
        node.graph.remove(node, safe=True)


def _sum_behind(node: ir.Node) -> tuple[ir.Node, ir.Value] | None:
    """The only reader of a product, where it adds a stored vector of its width."""
    readers = [reader for reader, _ in node.outputs[0].uses()]
    if len(readers) != 1 or readers[0].op_type != "Add" or readers[0].domain or node.outputs[0].is_graph_output():
        return None
    others = [value for value in readers[0].inputs if value is not node.outputs[0]]
    width = None if node.inputs[1] is None or node.inputs[1].shape is None else node.inputs[1].shape[-1]
    array = _array(others[0]) if others and others[0] is not None else None
    if array is None or array.ndim != 1 or array.shape[0] != width or others[0] is None:
        return None
    return readers[0], others[0]


def _stored(value: ir.Value) -> ir.Value | None:
    """The initializer of two axes that a weight is, behind DequantizeLinear or not."""
    producer = value.producer()
    if producer is not None and producer.op_type == "DequantizeLinear" and producer.inputs[0] is not None:
        value = producer.inputs[0]
    array = _array(value)
    return value if array is not None and array.ndim == 2 else None


def _turned(weight: ir.Value) -> ir.Value | None:
    """The stored weight with its two axes exchanged; None where it is something else."""
    stored = _stored(weight)
    node = weight.producer()
    graph = stored.graph if stored is not None else None
    if stored is None or not isinstance(graph, ir.Graph) or (node is not None and _is_blocked(node)):
        return None
    array = _array(stored)
    assert array is not None
    made = add_constant(graph, f"{stored.name}_turned", np.ascontiguousarray(array.T))
    if node is None:
        return made
    axis = 1 - node.attributes.get_int("axis", 1) % 2
    turned = ir.node("DequantizeLinear", [made, *node.inputs[1:]], {"axis": axis}, name=f"{node.name}_turned")
    turned.outputs[0].name, turned.outputs[0].type = f"{weight.name}_turned", weight.type
    turned.outputs[0].shape = ir.Shape(array.T.shape)
    graph.insert_after(node, turned)
    return turned.outputs[0]


def _is_blocked(node: ir.Node) -> bool:
    return node.attributes.get_int("block_size", 0) != 0


def _repeat(graph: ir.Graph, node: ir.Node) -> None:
    """The same DequantizeLinear once more for every reader but the first."""
    for number, (reader, place) in enumerate(tuple(node.outputs[0].uses())[1:], 1):
        kept = {name: attribute.value for name, attribute in node.attributes.items()}
        copy = ir.node("DequantizeLinear", list(node.inputs), kept, name=f"{node.name}_{number}")
        old, new = node.outputs[0], copy.outputs[0]
        new.name, new.type, new.shape = f"{old.name}_{number}", old.type, old.shape
        graph.insert_after(node, copy)
        reader.replace_input_with(place, new)


def _make_weight_real(graph: ir.Graph, node: ir.Node) -> None:
    """A weight per channel as floats where XNNPACK has no integers: nothing else makes it real when it runs.

    before:  x:i8, w:i8 → Conv → Add
    after:   x:i8, w:f32 → Conv → Add
    """
    if node.op_type != "DequantizeLinear" or node.domain or _is_blocked(node):
        return
    stored, scale, *zero = (_array(value) for value in node.inputs)
    readers = [reader for reader, _ in node.outputs[0].uses()]
    if stored is None or scale is None or scale.size == 1 or all(_is_integer(reader) for reader in readers):
        return
    axis = node.attributes.get_int("axis", 1) % stored.ndim
    shape = [-1 if place == axis else 1 for place in range(stored.ndim)]
    steps = stored.astype(np.float32) - (
        zero[0].astype(np.float32).reshape(shape) if zero and zero[0] is not None else 0
    )
    real = (steps * scale.reshape(shape)).astype(np.float32)
    made = add_constant(graph, f"{node.outputs[0].name}_real", real)
    node.outputs[0].replace_all_uses_with(made, replace_graph_outputs=True)


def _is_integer(node: ir.Node) -> bool:
    """Whether XNNPACK computes a product in integers: what it makes is quantized, a Relu or Clip before that or not."""
    if node.op_type not in ("Conv", "ConvTranspose", LINEAR):
        return False
    entry = None if node.inputs[0] is None else node.inputs[0].producer()
    readers = [reader for reader, _ in node.outputs[0].uses()]
    if len(readers) == 1 and readers[0].op_type in ("Relu", "Clip"):
        readers = [reader for reader, _ in readers[0].outputs[0].uses()]
    return (
        entry is not None
        and entry.op_type == "DequantizeLinear"
        and [each.op_type for each in readers] == ["QuantizeLinear"]
    )


def _give_zero_points(graph: ir.Graph, node: ir.Node) -> None:
    """Zeros where scales of channels come without: the partitioner wants them stored, not made by an operator."""
    scale = node.inputs[1] if node.op_type == "DequantizeLinear" and not node.domain else None
    array = _array(scale)
    if scale is None or array is None or array.size == 1 or (len(node.inputs) > 2 and node.inputs[2] is not None):
        return
    node.resize_inputs(3)
    node.replace_input_with(2, add_constant(graph, f"{scale.name}_zeros", np.zeros(array.shape, np.int8)))


def _own_arguments(graph: ir.Graph, node: ir.Node) -> None:
    """What a node takes as an argument is a constant that nobody else reads."""
    for place in () if node.domain else FIXED.get(node.op_type, ()):
        value = node.inputs[place] if place < len(node.inputs) else None
        array = None if value is None else _array(value)
        if array is not None:
            node.replace_input_with(place, add_constant(graph, f"{node.outputs[0].name}_argument{place}", array))


def _array(value: ir.Value | None) -> Array | None:
    """What an initializer holds; None where a value is computed, given or left out."""
    return None if value is None or value.const_value is None else value.const_value.numpy()
