"""Scores of attention in the form that RKNN-Toolkit2 reads.

before:  queries, keys → MatMul → QuantizeLinear → DequantizeLinear → Softmax
after:   queries, keys → MatMul → Softmax

RKNN-Toolkit2 2.5.0 crashes on the former where a product of integers reads the result.  The Softmax is float in both.
"""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass


def leave_scores_float(model: ir.Model) -> int:
    """In place; how many operators read values that are not rounded any more."""
    found = [(node, value) for node in model.graph if node.op_type == "Softmax" and (value := _rounded(node))]
    for node, value in found:
        node.replace_input_with(0, value)
    if found:
        RemoveUnusedNodesPass()(model)
    return len(found)


def _rounded(node: ir.Node) -> ir.Value | None:
    """The computed value that ``node`` reads as integers."""
    value = node.inputs[0]
    for kind in ("DequantizeLinear", "QuantizeLinear"):
        made = None if value is None else value.producer()
        if made is None or made.op_type != kind:
            return None
        value = made.inputs[0]
    return value
