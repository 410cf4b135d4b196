"""The interface that a model ends up with, whatever an exporter called its parts."""

from __future__ import annotations

import onnx_ir as ir

from convertkit.converters.pytorch.interface import settle_interface
from convertkit.converters.pytorch.leaves import Leaf


def test_free_dimensions_of_outputs_have_names_that_can_be_read() -> None:
    kind = ir.TensorType(ir.DataType.FLOAT)
    x = ir.Value(name="x", shape=ir.Shape(["batch", 4]), type=kind)
    shapes = (["batch", "Resizeoutput_dim_1"], ["2*batch", "Resizeoutput_dim_1"])
    nodes = [ir.node("Relu", [x]) for _ in shapes]
    for node, shape in zip(nodes, shapes, strict=True):
        node.outputs[0].shape, node.outputs[0].type = ir.Shape(shape), kind
    graph = ir.Graph([x], [node.outputs[0] for node in nodes], nodes=nodes, opset_imports={"": 18})
    settle_interface(ir.Model(graph, ir_version=8), (Leaf("x", "x", ("N", 4), "float32"),), ("a", "b"))
    assert [[getattr(dim, "value", dim) for dim in value.shape or ()] for value in graph.outputs] == [
        ["N", "a_1"],
        ["2*batch", "a_1"],
    ]
