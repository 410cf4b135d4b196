"""Products of matrices in the forms for which OpenVINO 2026.4's CPU plugin has its fastest integer kernels."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.edit import add_constant, array_of, only_user

_REORDERED = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose"})
"""Operators that put elements elsewhere, of bytes with a sign, too."""


def products_of_activations(model: ir.Model) -> frozenset[ir.Node]:
    """Each QuantizeLinear without a zero point whose integers only products of two activations read.

    Such a product has an integer kernel where both stay int8; as bytes they would have the zero point 128, and with
    one it is float.
    """
    found = (node for node in model.graph if node.op_type == "QuantizeLinear" and _is_centered(node))
    return frozenset(node for node in found if _only_multiplied(node.outputs[0]))


def _is_centered(node: ir.Node) -> bool:
    zero = array_of((*node.inputs, None)[2])
    return zero is not None and zero.dtype == np.int8 and not zero.any()


def _only_multiplied(value: ir.Value) -> bool:
    """Whether all that reads a value, reordered or not, are products of two activations."""
    uses = tuple(value.uses())
    return bool(uses) and not value.is_graph_output() and all(_multiplies(use.node) for use in uses)


def _multiplies(node: ir.Node) -> bool:
    if node.op_type == "MatMul":
        return all(_weight(value) is None for value in node.inputs)
    return node.op_type in (*_REORDERED, "DequantizeLinear") and _only_multiplied(node.outputs[0])


def fold_zero_points(model: ir.Model) -> int:
    """Move the zero points of what is multiplied by weights into the bias behind, in place; how many there were.

    before:  Add (MatMul (DequantizeLinear (x, s, z), w), b)
    after:   Add (MatMul (DequantizeLinear (x, s, 0), w), b - s z sum (w))

    The integers are the same.  The plugin subtracts a zero point behind the product in a step of its own, and scales
    in another; without one its kernel scales what it writes.
    """
    folded = 0
    for node in tuple(model.graph):
        if node.op_type != "MatMul" or node.domain:
            continue
        read, weight = (None if value is None else value.producer() for value in node.inputs)
        real, sum_ = _weight(node.inputs[1]), only_user(node.outputs[0])
        if read is None or real is None or weight is None or sum_ is None or sum_.op_type != "Add":
            continue
        place = 1 - next(iter(node.outputs[0].uses())).idx
        bias, parameters = array_of(sum_.inputs[place]), _byte_parameters(read)
        if parameters is None or bias is None or real.ndim != 2 or bias.shape != real.shape[1:]:
            continue
        scale, zero = parameters
        moved = bias.astype(np.float64) - scale * zero * real.sum(axis=0, dtype=np.float64)
        name = f"{node.outputs[0].name}_beyond_zero"
        sum_.replace_input_with(place, add_constant(model.graph, f"{name}_bias", moved.astype(np.float32)))
        node.replace_input_with(0, _without_zero_point(model.graph, node, read, name))
        folded += 1
    return folded


def _byte_parameters(node: ir.Node) -> tuple[float, int] | None:
    """Scale and zero point of bytes that are made real, where there is a zero point to move."""
    if node.op_type != "DequantizeLinear" or len(node.inputs) < 3 or node.inputs[0] is None:
        return None
    scale, zero = (array_of(value) for value in node.inputs[1:3])
    if scale is None or zero is None or scale.size != 1 or zero.size != 1 or zero.dtype != np.uint8 or not zero.any():
        return None
    return float(scale.item()), int(zero.item())


def _weight(value: ir.Value | None) -> Array | None:
    """Stored numbers, also as integers that are made real along an axis."""
    maker = None if value is None else value.producer()
    if maker is None or maker.op_type != "DequantizeLinear":
        return array_of(value)
    stored, scales, *zeros = (array_of(each) for each in maker.inputs)
    if stored is None or scales is None or "block_size" in maker.attributes or any(each is None for each in zeros):
        return None
    axis = maker.attributes.get_int("axis", 1) % max(stored.ndim, 1)
    shape = [-1 if each == axis else 1 for each in range(stored.ndim)] if scales.size > 1 else []
    zero = np.int32(0) if not zeros else np.asarray(zeros[0], np.int32).reshape(shape)
    return np.asarray((stored.astype(np.int32) - zero) * scales.reshape(shape), np.float32)


def _without_zero_point(graph: ir.Graph, node: ir.Node, read: ir.Node, name: str) -> ir.Value:
    """The same integers made real without their zero point, for one reader."""
    made = ir.Node("", "DequantizeLinear", read.inputs[:2], num_outputs=1, name=name)
    made.outputs[0].name, made.outputs[0].shape = name, read.outputs[0].shape
    made.outputs[0].type = read.outputs[0].type
    graph.insert_before(node, made)
    return made.outputs[0]
