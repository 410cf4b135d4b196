"""Editing a graph in place keeps names, shapes and the interface."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from convertkit.onnx.edit import add_constant, bypass, drop_unused, dropped, is_same_shape, only_reader, only_user

TEXT = """<ir_version: 10, opset_import: ["" : 18]> g (float[2] x) => (float[2] y, float[2] z) {
    y = Relu (x)
    a = Identity (y)
    b = Mul (a, a)
    c = Identity (b)
    z = Identity (c)
}"""


@pytest.fixture
def graph() -> ir.Graph:
    return ir.from_onnx_text(TEXT).graph


def node(graph: ir.Graph, output: str) -> ir.Node:
    return next(each for each in graph if each.outputs[0].name == output)


@pytest.mark.parametrize(("separator", "names"), [("_", "c c_1 c_2"), (".", "c c.1 c.2"), ("", "c c_ c__")])
def test_a_constant_has_a_name_of_its_own(graph: ir.Graph, separator: str, names: str) -> None:
    made = [add_constant(graph, "c", np.full((2, number), number, np.float16), separator) for number in (1, 2, 3)]
    assert [value.name for value in made] == names.split()
    assert list(graph.initializers) == names.split()
    assert (made[2].dtype, list(made[2].shape or ())) == (ir.DataType.FLOAT16, [2, 3])
    assert made[2].const_value is not None
    assert made[2].const_value.name == made[2].name


def test_a_name_of_the_interface_is_taken_over(graph: ir.Graph) -> None:
    bypass(node(graph, "z"), node(graph, "c").outputs[0])
    assert [value.name for value in graph.outputs] == ["y", "z"]
    assert [each.op_type for each in graph] == ["Relu", "Identity", "Mul", "Identity"]


def test_an_output_that_stands_for_another_value_keeps_its_name(graph: ir.Graph) -> None:
    bypass(node(graph, "a"), node(graph, "y").outputs[0])
    assert [value.name for value in graph.outputs] == ["y", "z"]
    assert [value.name for value in node(graph, "b").inputs] == ["y", "y"]


def test_an_output_is_not_lost_where_another_one_is_equal(graph: ir.Graph) -> None:
    bypass(node(graph, "c"), node(graph, "b").outputs[0])
    dropped(node(graph, "z"), node(graph, "y").outputs[0])
    assert [value.name for value in graph.outputs] == ["y", "z"]
    assert node(graph, "z").op_type == "Identity"


def test_users_and_readers(graph: ir.Graph) -> None:
    value = node(graph, "a").outputs[0]
    assert only_user(value) is None, "Mul uses it twice"
    assert only_reader(value) is node(graph, "b")
    assert only_user(node(graph, "b").outputs[0]) is only_reader(node(graph, "b").outputs[0]) is node(graph, "c")
    assert only_user(node(graph, "y").outputs[0]) is None
    assert only_reader(node(graph, "z").outputs[0]) is None


def test_what_nothing_reads_goes(graph: ir.Graph) -> None:
    kept = add_constant(graph, "kept", np.zeros(2, np.float32))
    add_constant(graph, "gone", np.zeros(2, np.float32))
    node(graph, "b").replace_input_with(1, kept)
    drop_unused(graph)
    assert list(graph.initializers) == ["kept"]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [([2, "N"], [2, "N"], True), ([2, "N"], [2, "M"], False), ([None], [None], False), ([1], [1, 1], False)],
)
def test_sizes_without_a_name_need_not_be_the_same(one, other, same: bool) -> None:
    assert is_same_shape(ir.Shape(one), ir.Shape(other)) is same
