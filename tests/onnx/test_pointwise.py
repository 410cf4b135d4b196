"""Which operators together are a function of one number."""

import onnx_ir as ir
import pytest
from onnx import parser, shape_inference

from convertkit.onnx.pointwise import functions

ROWS = {
    "one": ("a = Abs (x) d = Add (a, one) y = Div (x, d)", {"Div"}, [("x", "a d y")]),
    "of what is known": ("a = Abs (x) y = Add (a, one)", {"Div"}, []),
    "the shortest": ("a = Abs (x) n = Neg (a) y = Div (n, one)", {"Div"}, [("n", "y")]),
    "read beside": ("a = Abs (x) d = Add (a, one) q = Div (x, d) r = ReduceMax (d) y = Mul (q, r)", {"Div"}, []),
    "longer, for what is read inside": (
        "p = Greater (x, one) w = Where (p, one, x) e = Exp (w) y = Where (p, x, e)", {"Where", "Greater"},
        [("x", "p w e y")],
    ),
    "one within another": (
        "p = Less (x, one) n = Sub (x, one) s = Where (p, x, n) a = Abs (x) q = Less (a, one) y = Where (q, s, one)",
        {"Where"}, [("x", "a q p n s y")],
    ),
    "of two values": ("d = Add (x, z) y = Div (x, d)", {"Div"}, []),
    "of a row": ("d = Add (x, row) y = Div (x, d)", {"Div"}, []),
    "of several elements": ("m = ReduceMax (x) y = Div (x, m)", {"Div"}, []),
    "a constant of more axes": ("d = Add (x, deep) y = Div (d, d)", {"Add"}, []),
    "spread": ("q = Div (v, one) y = Add (x, q)", {"Div"}, [("v", "q")]),
    "two": (
        "a = Div (x, one) r = ReduceMax <keepdims = 1> (a) b = Div (r, one) y = Add (b, one)", {"Div"},
        [("x", "a"), ("r", "b")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_functions_of_one_number(name):
    lines, unknown, wanted = ROWS[name]
    text = f"""<ir_version: 9, opset_import: ["" : 18]> g (float[4,6] x, float[4,6] z, float[6] v) => (float y)
        <float one = {{2.0}}, float[6] row = {{1,2,3,4,5,6}}, float[1,1,1] deep = {{2.0}}> {{ {lines} }}"""
    proto = parser.parse_model(text)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    graph = ir.from_proto(shape_inference.infer_shapes(proto)).graph
    found = functions(graph, lambda node: node.op_type not in unknown)
    assert [(each.source.name, " ".join(node.outputs[0].name for node in each.nodes)) for each in found] == wanted
