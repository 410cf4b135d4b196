"""Stored integers in the steps that RKNN-Toolkit2 takes of them.

before:  w:i8 → DequantizeLinear(scale)
after:   w · 128/127, rounded → DequantizeLinear(scale · 127/128)

The toolkit takes stored int8 values with a zero point of 0 for ones of the range that int8 has, -128 to 127 times the
scale, maps 128 steps to 127 and rounds each to the new step: up to half a step of every weight was lost.  Found in
version 2.5.0 by fitting the weights of a convolution to what it computes.  What is written here rounds to the integers
and the scale of the graph; of 127 alone nothing does, and the profile leaves it out.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

_STEPS, _TAKEN = 128, 127


def write_weight_steps(model: ir.Model) -> int:
    """In place; how many stored values there were."""
    found = [node for node in model.graph if node.op_type == "DequantizeLinear" and _is_symmetric(node)]
    for node in found:
        stored, scale = (node.inputs[place] for place in (0, 1))
        assert stored is not None
        assert stored.const_value is not None
        assert scale is not None
        assert scale.const_value is not None
        wide = np.rint(stored.const_value.numpy().astype(np.float64) * _STEPS / _TAKEN)
        limits = np.iinfo(np.int8)
        integers = np.clip(wide, limits.min, limits.max).astype(np.int8)
        steps = (scale.const_value.numpy().astype(np.float64) * _TAKEN / _STEPS).astype(np.float32)
        node.replace_input_with(0, _held(model.graph, f"{node.name}_taken", integers))
        node.replace_input_with(1, _held(model.graph, f"{node.name}_taken_scale", steps))
    if found:
        RemoveUnusedNodesPass()(model)
    return len(found)


def _is_symmetric(node: ir.Node) -> bool:
    """Whether int8 values are stored, and no zero point is other than 0."""
    stored, scale, *zeros = (None if value is None else value.const_value for value in node.inputs)
    if stored is None or scale is None or stored.dtype != ir.DataType.INT8:
        return False
    return all(zero is not None and not zero.numpy().any() for zero in zeros)


def _held(graph: ir.Graph, name: str, array: np.ndarray) -> ir.Value:
    tensor = ir.tensor(array, name=name)
    value = ir.Value(name=name, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype), const_value=tensor)
    graph.register_initializer(value)
    return value
