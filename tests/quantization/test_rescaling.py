"""What scales meet in: the common denominators of means and interpolations."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from convertkit.quantization.place.rescaling import averaged
from tests.quantization.models import model_of

SHAPE: list[int | str] = [1, 3, 6, 8]
SCALES = np.float32([1, 1, 2, 4])


def node_of(op: str, *inputs: str, **attributes: object) -> ir.Node:
    constants = {"axes": np.array([2, -1]), "scales": SCALES, "odd": np.float32([1, 1, 1.5, 1])}
    used = {name: constants[name] for name in inputs if name in constants}
    model = model_of([helper.make_node(op, list(inputs), ["y"], **attributes)], used, {"x": SHAPE}, {"y": [None] * 4})
    return next(iter(ir.from_proto(onnx.shape_inference.infer_shapes(model)).graph))


@pytest.mark.parametrize(
    ("node", "count"),
    [
        (node_of("ReduceMean", "x", "axes"), 48),
        (node_of("ReduceMean", "x"), 144),
        (node_of("GlobalAveragePool", "x"), 48),
        (node_of("AveragePool", "x", kernel_shape=[2, 3]), 6),
        (node_of("AveragePool", "x", kernel_shape=[2, 3], pads=[1, 1, 0, 0]), 0),
        (node_of("AveragePool", "x", kernel_shape=[2, 3], auto_pad="SAME_UPPER"), 0),
        (node_of("Resize", "x", "", "scales", mode="linear"), 32),
        (node_of("Resize", "x", "", "scales", mode="linear", coordinate_transformation_mode="asymmetric"), 8),
        (node_of("Resize", "x", "", "scales", mode="linear", coordinate_transformation_mode="align_corners"), 0),
        (node_of("Resize", "x", "", "scales", mode="cubic"), 0),
        (node_of("Resize", "x", "", "odd", mode="linear"), 0),
    ],
    ids=lambda value: value.op_type if isinstance(value, ir.Node) else None,
)
def test_common_denominator(node: ir.Node, count: int) -> None:
    assert averaged(node) == count
