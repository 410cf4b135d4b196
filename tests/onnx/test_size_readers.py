"""A Shape between a convolution and what it absorbs asks behind it."""

import onnx_ir as ir
from onnx import parser

from convertkit.onnx.canonical import canonicalize

HEAD = '<ir_version: 8, opset_import: ["" : 18]>'


def readers(body: str) -> dict[str, str]:
    """What each Shape of the canonical model reads, by the name of its result."""
    proto = parser.parse_model(f"""{HEAD} g (float[n,2,h,w] x, float low) => (float[n,2,a,b] y, int64[4] s)
        <float[2,2,1,1] k = {{1.0,2.0,3.0,4.0}}, float zero = {{0.0}}> {{ {body} }}""")
    model = canonicalize(ir.from_proto(proto))
    order = {value.name: place for place, node in enumerate(model.graph) for value in node.outputs}
    shapes = [node for node in model.graph if node.op_type == "Shape"]
    assert all(order[node.inputs[0].name] < order[node.outputs[0].name] for node in shapes)
    return {str(node.outputs[0].name): str(node.inputs[0].name) for node in shapes}


def test_it_asks_behind_what_a_convolution_absorbs() -> None:
    assert readers("h = Conv(x, k)  s = Shape(h)  r = Relu(h)  y = Clip(r, zero)") == {"s": "y"}


def test_it_stays_where_values_branch() -> None:
    assert readers("h = Conv(x, k)  s = Shape(h)  r = Relu(h)  t = Tanh(h)  y = Add(r, t)") == {"s": "h"}


def test_it_stays_in_front_of_what_depends_on_more() -> None:
    assert readers("h = Conv(x, k)  s = Shape(h)  y = Clip(h, low)") == {"s": "h"}
