"""By which names rules and costs know an operator: products that go to a Softmax, and a Resize that copies."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from convertkit.quantization.graph.kinds import node_kinds

SCORES = ("MatMul.scores", "MatMul.dynamic")


def kinds(body: str, output: str = "y") -> tuple[str, ...]:
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
    g (float[2,3,4,5] q, float[2,3,5,4] k, float[2,3,4,4] mask, bool[4,4] seen) => (float[a,b,c,d] {output})
    <float scale = {{0.3}}, float low = {{-1e9}}> {{ {body} }}"""
    graph = ir.from_proto(onnx.parser.parse_model(text)).graph
    return node_kinds(graph[0])


@pytest.mark.parametrize(
    ("behind", "wanted"),
    [
        ("y = Softmax (s)", SCORES),
        ("a = Mul (s, scale)  b = Add (mask, a)  c = Where (seen, b, low)  y = Softmax (c)", SCORES),
        ("a = Div (s, scale)  b = Sub (a, mask)  y = Softmax (b)", SCORES),
        ("y = Relu (s)", SCORES[1:]),
        ("a = Relu (s)  y = Softmax (a)", SCORES[1:]),
        ("a = Softmax (s)  y = Add (a, s)", SCORES[1:]),
    ],
    ids=["alone", "scaled and masked", "divided and masked", "not at all", "past a Relu", "read twice"],
)
def test_products_that_go_to_a_softmax(behind: str, wanted: tuple[str, ...]) -> None:
    assert kinds(f"s = MatMul (q, k)  {behind}") == wanted


def test_scores_that_are_an_output_too_are_a_product_like_others() -> None:
    assert kinds("y = MatMul (q, k)  p = Softmax (y)") == SCORES[1:]


@pytest.mark.parametrize(
    ("attributes", "wanted"),
    [
        ('mode = "nearest"', ("Resize.nearest", "Resize")),
        ('nearest_mode = "floor", coordinate_transformation_mode = "asymmetric"', ("Resize.nearest", "Resize")),
        ('mode = "nearest", coordinate_transformation_mode = "tf_crop_and_resize"', ("Resize",)),
        ('mode = "linear"', ("Resize.interpolated", "Resize")),
    ],
)
def test_a_resize_that_copies(attributes: str, wanted: tuple[str, ...]) -> None:
    """Where it crops it also writes a number of its own."""
    assert kinds(f"y = Resize <{attributes}> (q, , scale)") == wanted
