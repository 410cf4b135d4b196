"""Counts in names that come from the order of the graph."""

import onnx
import pytest
from onnx import helper, parser

from convertkit.converters.tensorflow.numbering import renumber

TEXT = """<ir_version: 8, opset_import: ["" : 18]>
g (float[unk__{d},3] x, float[3] given__2) => (float[unk__{d},3] y__{o}) <float[1] w__{a} = {{2}}> {{
  h__{b} = Mul (x, w__{a})
  k = Add (h__{b}, given__2)
  y__{o} = Neg (k)
}}"""


def numbered(**counts):
    proto = parser.parse_model(TEXT.format(**counts))
    for place, node in enumerate(proto.graph.node):
        node.name = f"n__{counts['b'] + place * 7 + 1}"
    renumber(proto)
    onnx.checker.check_model(proto, full_check=True)
    return proto


def test_counts_follow_the_graph():
    one, other = numbered(d=90, a=3, b=11, o=5), numbered(d=4, a=70, b=200, o=5)
    assert one == other
    assert [value.name for value in one.graph.output] == ["y__5"]
    assert [value.name for value in one.graph.input] == ["x", "given__2"]


@pytest.mark.parametrize("a", [1, 6, 8])
def test_no_two_names_become_one(a):
    proto = numbered(d=9, a=a, b=a + 100, o=1 if a != 1 else 4)
    names = [name for node in proto.graph.node for name in (*node.input, *node.output)]
    assert len(set(names)) == 6


def test_bodies_are_counted_too():
    body = helper.make_graph(
        [helper.make_node("Neg", ["c__40"], ["d__41"])], "b", [], [helper.make_tensor_value_info("d__41", 1, None)]
    )
    node = helper.make_node("If", ["cond"], ["y"], then_branch=body, else_branch=body)
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["c__40"]), node], "g", [], [])
    proto = helper.make_model(graph)
    renumber(proto)
    (outer,) = proto.graph.node[0].output
    inner = proto.graph.node[1].attribute[0].g.node[0]
    assert inner.input[0] == outer == "c__1"


def test_equal_constants_have_one_name_and_order():
    """tf2onnx keeps one of equal constants, which one differs from run to run."""

    def made(first: str, second: str, order: list[int]) -> onnx.ModelProto:
        names = [f"{first}__7", f"{second}__4"]
        nodes = [helper.make_node("Add", ["x", names[0]], ["h"]), helper.make_node("Mul", ["h", names[1]], ["y"])]
        ends = [helper.make_tensor_value_info(name, 1, [2]) for name in "xy"]
        constants = [helper.make_tensor(name, 1, [1], [float(place)]) for place, name in enumerate(names)]
        proto = helper.make_model(
            helper.make_graph(nodes, "g", ends[:1], ends[1:], [constants[place] for place in order])
        )
        renumber(proto)
        onnx.checker.check_model(proto, full_check=True)
        return proto

    one, other = made("const_axes", "const_ends", [0, 1]), made("const_starts", "const_fold_opt", [1, 0])
    assert one == other
    assert [tensor.name for tensor in one.graph.initializer] == ["const__1", "const__2"]
