"""Stored weights as the float32 numbers that they stand for, for compilers that compress weights themselves."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator
from onnx_ir.passes.common import RemoveUnusedNodesPass

from convertkit.artifact import Array
from convertkit.onnx.edit import add_constant, array_of


def make_stored_real(model: ir.Model) -> int:
    """Integers behind DequantizeLinear, and float16 behind Cast, where both are stored, in place; how many."""
    done = 0
    for graph in (model.graph, *model.graph.subgraphs()):
        for node in tuple(graph) if isinstance(graph, ir.Graph) else ():
            real = _real(node, model.graph.opset_imports.get("", 1))
            if real is None or node.outputs[0].is_graph_output():
                continue
            made = add_constant(graph, f"{node.outputs[0].name}_stored", real)
            node.outputs[0].replace_all_uses_with(made)
            done += 1
    if done:
        RemoveUnusedNodesPass()(model)
    return done


def _real(node: ir.Node, opset: int) -> Array | None:
    """What the node makes of what is stored; None for any other node."""
    if node.domain or node.op_type not in ("Cast", "DequantizeLinear"):
        return None
    arrays = {str(value.name): array_of(value) for value in node.inputs if value is not None}
    if any(array is None for array in arrays.values()):
        return None
    (first, *_) = arrays.values()
    half = first is not None and first.dtype == np.float16 and node.attributes.get_int("to", 0) == ir.DataType.FLOAT
    if node.op_type == "Cast" and not half:
        return None
    proto = ir.to_proto(node)
    assert isinstance(proto, onnx.NodeProto)
    (real,) = ReferenceEvaluator(proto, opsets={"": opset}).run(None, arrays)
    return np.asarray(real, np.float32)
