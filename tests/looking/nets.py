"""Models that are small enough to be looked at in milliseconds."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests import onnx_models


def image_net(seed: int = 3) -> onnx.ModelProto:
    """Two convolutions, a pooling, a dense layer; ``x`` (N, 3, 8, 8) to ``y`` (N, 4)."""
    draw = np.random.default_rng(seed).standard_normal
    shapes = {"w1": (6, 3, 3, 3), "b1": (6,), "w2": (8, 6, 3, 3), "b2": (8,), "w3": (8, 4), "b3": (4,)}
    stored = [numpy_helper.from_array((0.4 * draw(shape)).astype(np.float32), name) for name, shape in shapes.items()]
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], name="first", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"], name="act1"),
        helper.make_node("Conv", ["r1", "w2", "b2"], ["c2"], name="second", pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Sigmoid", ["c2"], ["s2"], name="gate"),
        helper.make_node("Mul", ["c2", "s2"], ["m2"], name="swish"),
        helper.make_node("GlobalAveragePool", ["m2"], ["p"], name="pool"),
        helper.make_node("Flatten", ["p"], ["f"], name="flat"),
        helper.make_node("Gemm", ["f", "w3", "b3"], ["y"], name="dense"),
    ]
    return onnx_models.model(nodes, {"x": ["N", 3, 8, 8]}, {"y": ["N", 4]}, stored)
