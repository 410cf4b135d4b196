"""Normalizations in the form that the NPU takes: an unsigned scale, and a bias of one scale for all channels.

before:  LayerNormalization (x, DequantizeLinear (int8 weight, s, 0), DequantizeLinear (int32 bias, [t, t, …, t]))
after:   LayerNormalization (x, DequantizeLinear (uint8 weight + 128, s, 128), DequantizeLinear (int32 bias, t))

No number changes.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import add_constant
from convertkit.onnx.unsigned import widen_operands

NORMS = frozenset({"LayerNormalization", "InstanceNormalization"})
_WEIGHT, _BIAS = 1, 2


def write_norms(model: ir.Model) -> None:
    """All of them, in place."""
    widen_operands(model, NORMS, _WEIGHT)
    for node in model.graph:
        if node.op_type != "DequantizeLinear" or node.domain:
            continue
        uses = tuple(node.outputs[0].uses())
        if uses and all(use.node.op_type in NORMS and use.idx == _BIAS for use in uses):
            _make_one_scale(model.graph, node)


def _make_one_scale(graph: ir.Graph, node: ir.Node) -> None:
    """Where the parameters of all channels are equal."""
    parameters = [value for value in node.inputs[1:] if value is not None]
    arrays = [None if value.const_value is None else value.const_value.numpy() for value in parameters]
    if any(each is None or each.size == 0 or (each != each.flat[0]).any() for each in arrays):
        return
    for place, (value, array) in enumerate(zip(parameters, arrays, strict=True), 1):
        assert array is not None
        if array.ndim:
            one = add_constant(graph, f"{value.name}_one", np.array(array.flat[0]), separator="")
            node.replace_input_with(place, one)
            if not value.uses():
                del graph.initializers[str(value.name)]
    node.attributes.pop("axis", None)
