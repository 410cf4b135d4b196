"""Products of matrices in the forms for which OpenVINO 2026.4's CPU plugin has its fastest integer kernels."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.edit import array_of

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
