"""Products that integers do not make faster on a GPU stay float for TensorRT, unless integers are insisted on."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper

from convertkit.quantization.graph.tiles import fills_tiles
from tests.quantization.models import model_of, small_cnn

TILE = 16
DATA = {"x": np.random.default_rng(3).normal(0, 1, (24, 3, 12, 12)).astype(np.float32)}


def product(kind: str, weight: tuple[int, ...], *, entry: bool, group: int = 1) -> ir.Node:
    """The operator in a graph where it reads an input (``entry``) or what a Relu makes."""
    reads = "x" if entry else "r"
    given = {"group": group} if kind == "Conv" else {}
    rank = len(weight) if kind == "Conv" else 2
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node(kind, [reads, "w"], ["y"], "product", **given)]
    shapes: list[int | str] = [f"d{axis}" for axis in range(rank)]
    model = model_of(nodes, {"w": np.ones(weight, np.float32)}, {"x": shapes}, {"y": shapes})
    return next(node for node in ir.from_proto(model).graph if node.name == "product")


@pytest.mark.parametrize(
    ("kind", "weight", "group", "entry", "fills"),
    [
        ("MatMul", (64, 32), 1, False, True),
        ("MatMul", (64, 12), 1, False, False),
        ("MatMul", (15, 32), 1, False, False),
        ("Gemm", (16, 16), 1, False, True),
        ("Gemm", (10, 64), 1, False, False),
        ("Conv", (32, 16, 1, 3), 1, False, True),
        ("Conv", (32, 3, 3, 3), 1, True, True),
        ("Conv", (32, 3, 3, 3), 1, False, True),
        ("Conv", (64, 1, 10, 4), 1, False, False),
        ("Conv", (12, 8, 3, 3), 1, True, True),
        ("Conv", (12, 8, 3, 3), 1, False, False),
        ("Conv", (20, 3, 3, 3), 1, True, False),
        ("Conv", (24, 1, 3, 5), 24, False, True),
        ("Conv", (20, 1, 3, 3), 20, False, False),
        ("Conv", (24, 1, 1, 3), 24, False, False),
        ("ConvTranspose", (4, 4, 2, 2), 1, False, True),
    ],
)
def test_what_fills_tiles(kind: str, weight: tuple[int, ...], group: int, entry: bool, fills: bool) -> None:
    assert fills_tiles(product(kind, weight, entry=entry, group=group), TILE) == fills


def integers(result) -> set[str]:
    made = {output: node.op_type for node in result.graph.node for output in node.output}
    return {node.name for node in result.graph.node if node.name and made.get(node.input[0]) == "DequantizeLinear"}


@pytest.mark.parametrize(("choices", "quantizes_the_head"), [({}, False), ({"full_integer": True}, True)])
def test_a_narrow_classifier_stays_float_for_tensorrt(quantized, choices: dict, quantizes_the_head: bool) -> None:
    result = quantized(small_cnn(), DATA, target="tensorrt", **choices)
    assert {"conv1", "depthwise", "pointwise"} <= integers(result)
    (head,) = [node.name for node in result.graph.node if node.op_type == "Gemm"]
    assert (head in integers(result)) == quantizes_the_head


def test_a_model_of_narrow_products_says_why_it_is_float(quantized) -> None:
    rng = np.random.default_rng(5)
    constants = {"w": rng.normal(0, 1, (6, 12)).astype(np.float32)}
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["f"]), helper.make_node("MatMul", ["f", "w"], ["y"], "head")]
    constants["shape"] = np.array([-1, 6])
    model = model_of(nodes, constants, {"x": ["N", 2, 3]}, {"y": ["N", 12]})
    data = {"x": rng.normal(0, 1, (24, 2, 3)).astype(np.float32)}
    result = quantized(model, data, target="tensorrt")
    (note,) = result.stage.diagnosis["notes"]
    assert note == (
        "the artifact is the float model: tensorrt int8 has integer kernels for none of its operators; matrices "
        "narrower than 16 become integers with --full-integer alone"
    )
