"""The interface that a model ends up with, whatever an exporter called its parts."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from convertkit.converters.pytorch.model.leaves import Leaf
from convertkit.converters.pytorch.model.provenance import user_line
from convertkit.converters.pytorch.routes.flat import Flat
from convertkit.converters.pytorch.routes.restoring import settle_interface
from convertkit.errors import ToolError


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


def _relu(*shape: int | str) -> ir.Model:
    kind = ir.TensorType(ir.DataType.FLOAT)
    x = ir.Value(name="x", shape=ir.Shape(shape), type=kind)
    node = ir.node("Relu", [x])
    node.outputs[0].shape, node.outputs[0].type = ir.Shape(shape), kind
    return ir.Model(ir.Graph([x], node.outputs, nodes=[node], opset_imports={"": 18}), ir_version=8)


def _leaf(name: str, *shape: int | str) -> Leaf:
    return Leaf(name, name, shape, "float32")


@pytest.mark.parametrize(
    ("shape", "leaves", "outputs", "reason"),
    [
        ((2, 4), (_leaf("x", "N", 4),), ("a",), "the exporter fixed N of x at 2"),
        (("s0", 4), (_leaf("x", "N", 4),), ("a", "b"), "the exporter made 1 outputs, the model has 2"),
        (("s0", 4), (_leaf("y", "N", 4),), ("a",), "the exporter made the input x, which the model does not have"),
    ],
)
def test_another_interface_than_the_model_s_is_refused(
    shape: tuple[int | str, ...], leaves: tuple[Leaf, ...], outputs: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(ToolError, match=reason):
        settle_interface(_relu(*shape), leaves, outputs)


def test_inputs_that_nothing_reads_come_back_in_their_places() -> None:
    model = _relu("s0", 4)
    settle_interface(model, (_leaf("unread", 3), _leaf("x", "N", 4)), ("a",))
    assert [(value.name, tuple(value.shape or ())) for value in model.graph.inputs] == [
        ("unread", (3,)),
        ("x", ("N", 4)),
    ]


def test_what_is_returned_twice_or_as_it_came_has_a_name_for_each() -> None:
    model = _relu("s0", 4)
    model.graph.outputs.extend([model.graph.outputs[0], model.graph.inputs[0]])
    settle_interface(model, (_leaf("x", "N", 4),), ("a", "b", "c"))
    assert [value.name for value in model.graph.outputs] == ["a", "b", "c"]
    assert [value.name for value in model.graph.inputs] == ["x"]
    assert len({id(value) for value in model.graph.outputs}) == 3


def test_a_constant_that_an_exporter_has_named_as_its_output_gets_another_name() -> None:
    model = _relu("s0", 4)
    weight = ir.Value(name="b", const_value=ir.tensor([1.0, 2.0], name="b"))
    model.graph.register_initializer(weight)
    model.graph.outputs.append(weight)
    settle_interface(model, (_leaf("x", "N", 4),), ("a", "b"))
    assert [value.name for value in model.graph.outputs] == ["a", "b"]
    assert list(model.graph.initializers) == ["b_0"]


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("/srv/torch/nets/model.py", "model.py:41, in forward"),
        ("torch/nn/modules/linear.py", ""),
        ("/opt/torch/_tensor.py", ""),
        ("/usr/lib/python3/site-packages/timm/layers.py", ""),
    ],
)
def test_a_line_is_the_user_s_own_in_a_folder_called_torch(file: str, told: str) -> None:
    assert user_line(f'  File "{file}", line 41, in forward\n') == told


def test_an_artifact_does_not_depend_on_where_our_own_modules_lie() -> None:
    model = _relu("s0", 4)
    (node,) = model.graph
    node.metadata_props["namespace"] = f": {Flat.__module__}.Flat/model: nets.Net/model.act: nets.Act/relu: aten.relu"
    settle_interface(model, (_leaf("x", "N", 4),), ("a",))
    assert node.metadata_props["namespace"] == "model: nets.Net/model.act: nets.Act/relu: aten.relu"
