"""By which names rules and costs know an operator: a Resize that copies."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from convertkit.quantization.graph.kinds import node_kinds


def kinds(body: str, output: str = "y") -> tuple[str, ...]:
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
    g (float[2,3,4,5] q, float[2,3,5,4] k, float[2,3,4,4] mask, bool[4,4] seen) => (float[a,b,c,d] {output})
    <float scale = {{0.3}}, float low = {{-1e9}}> {{ {body} }}"""
    graph = ir.from_proto(onnx.parser.parse_model(text)).graph
    return node_kinds(graph[0])


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
