"""A refusal over sizes that are only known at run time says which dimensions to fix, where that helps."""

from __future__ import annotations

import onnx_ir as ir
import pytest
from onnx import parser, shape_inference

from convertkit.errors import UnknownSize, Unsupported
from convertkit.targets.forms.free_sizes import ways_out

OTHERS = ("--target onnxruntime",)
HALVED = "a = AveragePool <kernel_shape = [2, 2], strides = [2, 2]> (x)"


def _last(inputs: str, nodes: str) -> ir.Node:
    """The last node of a graph whose shapes are inferred, as far as they can be."""
    text = f'<ir_version: 9, opset_import: ["": 18]> g ({inputs}) => (y) {{ {nodes} }}'
    model = ir.from_proto(shape_inference.infer_shapes(parser.parse_model(text)))
    return list(model.graph)[-1]


@pytest.mark.parametrize(
    ("inputs", "nodes", "fixed"),
    [
        ("float[N,T] x", "y = Hardmax <axis = 1> (x)", "--static T=SIZE"),
        ("float[N,3] x", "y = Hardmax <axis = 0> (x)", "--static N=SIZE"),
        ("float[N,3,H,W] x", f"{HALVED} y = Hardmax <axis = 2> (a)", "--static H=SIZE --static W=SIZE"),
        ("float[N,T] x, float[N,S] z", "a = Relu (x) y = Hardmax <axis = 1> (z)", "--static S=SIZE"),
    ],
)
def test_the_dimensions_that_the_operator_is_computed_from(inputs: str, nodes: str, fixed: str):
    assert ways_out(UnknownSize("a size"), _last(inputs, nodes), OTHERS) == (fixed, *OTHERS)


@pytest.mark.parametrize(
    ("inputs", "nodes"),
    [
        ("float[N,7] x", "a = NonZero (x) b = Cast <to = 1> (a) y = Hardmax <axis = 1> (b)"),
        ("float[2,7] x", "y = Hardmax <axis = 1> (x)"),
    ],
    ids=["values decide how many there are", "nothing is free"],
)
def test_sizes_that_no_dimension_decides(inputs: str, nodes: str):
    assert ways_out(UnknownSize("a size"), _last(inputs, nodes), OTHERS) == OTHERS


def test_a_name_may_be_of_any_characters():
    node = _last("float[N,T] x", "y = Hardmax <axis = 1> (x)")
    assert node.inputs[0] is not None
    node.inputs[0].shape = ir.Shape(["batch-size", "past seq"])
    assert ways_out(UnknownSize("a size"), node, OTHERS) == ("--static 'past seq=SIZE'", *OTHERS)


def test_other_refusals_keep_their_ways_out():
    assert ways_out(Unsupported("a mode"), _last("float[N,T] x", "y = Hardmax (x)"), OTHERS) == OTHERS
