"""Which average pools go to TFLite's integer kernel, which divides by the elements that lie in the image."""

import onnx_ir as ir
import pytest

from convertkit.targets.tflite.passes.averages import counts_as_onnx


@pytest.mark.parametrize(
    ("attributes", "shape", "counts"),
    [
        ({}, (1, 5, 5, 2), True),
        ({"pads": [0, 0, 1, 1]}, (1, 5, 5, 2), True),
        ({"auto_pad": "SAME_UPPER"}, (1, 5, 5, 2), True),
        ({"pads": [1, 1, 0, 0]}, (1, 5, 5, 2), False),
        ({"pads": [0, 0, 1, 1], "count_include_pad": 1}, (1, 5, 5, 2), True),
        ({"pads": [1, 0, 1, 1], "count_include_pad": 1}, (1, "H", 5, 2), True),
        ({"pads": [0, 0, 1, 1], "count_include_pad": 1, "ceil_mode": 1}, (1, 5, 5, 2), True),
        ({"pads": [0, 0, 1, 1], "count_include_pad": 1, "ceil_mode": 1}, (1, 4, 5, 2), False),
        ({"pads": [0, 0, 0, 0], "count_include_pad": 1, "ceil_mode": 1}, (1, 5, 5, 2), True),
        ({"pads": [0, 0, 1, 1]}, (1, "H", 5, 2), False),
        ({"pads": [0, 0, 1, 1]}, (1, 6, 5, 2), False),
        ({"ceil_mode": 1}, (1, 5, 5, 2), True),
        ({"ceil_mode": 1, "pads": [1, 1, 0, 0]}, (1, 5, 5, 2), False),
        ({"ceil_mode": 1}, (1, "H", 5, 2), False),
        ({"dilations": [2, 1]}, (1, 5, 5, 2), False),
        ({}, (1, 5, 5, 5, 2), False),
    ],
)
def test_counts(attributes, shape, counts):
    x = ir.Value(name="x", shape=ir.Shape(shape), type=ir.TensorType(ir.DataType.FLOAT))
    node = ir.node("AveragePool", [x], {"kernel_shape": [2, 2], "strides": [2, 2], **attributes})
    assert counts_as_onnx(node, x) is counts
