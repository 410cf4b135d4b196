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
