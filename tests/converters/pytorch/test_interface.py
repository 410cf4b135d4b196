"""The interface that a model ends up with, whatever an exporter called its parts."""

from __future__ import annotations

import onnx_ir as ir

from convertkit.converters.pytorch.interface.leaves import Leaf
from convertkit.converters.pytorch.roads.restoring import settle_interface


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
        ["2*N", "a_1"],
    ]


def test_sizes_computed_from_dimensions_that_are_fixed_are_numbers() -> None:
    kind = ir.TensorType(ir.DataType.FLOAT)
    x = ir.Value(name="x", shape=ir.Shape(["s0", "s1"]), type=kind)
    node = ir.node("Relu", [x])
    node.outputs[0].shape, node.outputs[0].type = ir.Shape(["s0*s1", "(s1 - 1)//2 + 1"]), kind
    graph = ir.Graph([x], node.outputs, nodes=[node], opset_imports={"": 18})
    settle_interface(ir.Model(graph, ir_version=8), (Leaf("x", "x", ("N", 9), "float32"),), ("a",))
    assert [getattr(dim, "value", dim) for dim in graph.outputs[0].shape or ()] == ["N*9", 5]
