"""Comparisons of square roots with constants, on every neighbour of the constant."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from convertkit.targets.tflite.passes.part import Part
from convertkit.targets.tflite.passes.thresholds import compare_under_roots
from tests.targets.tflite.compiled import compiled

KINDS = ("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal")
LIMITS = np.array([np.sqrt(1e-5), 0.0, -0.0, -1.0, 3.0, 1e-22, 1e-30, 1.8446743e19, 1e30, np.inf, np.nan], np.float32)


def points() -> np.ndarray:
    """What is near the squares of the limits, and what has no root."""
    with np.errstate(over="ignore"):
        up = down = np.square(LIMITS)
        near = [up]
        for _ in range(3):
            up, down = np.nextafter(up, np.float32(np.inf)), np.nextafter(down, np.float32(0))
            near += [up, down]
    others = np.array([-1, -0.0, 0, 1e-45, 1e-38, np.nan, np.inf, 4], np.float32)
    return np.concatenate([*near, others])


def model(kind: str, *, constant_first: bool) -> onnx.ModelProto:
    operands = "c, r" if constant_first else "r, c"
    text = f"""<ir_version: 9, opset_import: ["" : 18]>
        g (float[N, 1] x) => (bool[N, {len(LIMITS)}] y) {{ r = Sqrt (x) y = {kind} ({operands}) }}"""
    made = onnx.parser.parse_model(text)
    made.graph.initializer.append(numpy_helper.from_array(LIMITS, "c"))
    return onnx.shape_inference.infer_shapes(made)


@pytest.mark.parametrize("constant_first", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_answer_is_that_of_roots_rounded_to_nearest(kind: str, constant_first: bool) -> None:
    before = model(kind, constant_first=constant_first)
    after = ir.from_proto(before)
    compare_under_roots(Part(after.graph))
    left = {node.op_type for node in after.graph if node.outputs[0].uses() or node.outputs[0].is_graph_output()}
    assert "Sqrt" not in left
    x = points()[:, None]
    np.testing.assert_array_equal(*(evaluated(each, x) for each in (ir.to_proto(after), before)))


def evaluated(proto: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return onnx.reference.ReferenceEvaluator(proto).run(None, {"x": x})[0]


def test_a_mask_of_a_clamped_deviation_is_the_source_s() -> None:
    """Graph networks set deviations to 0 that are no larger than the root of their epsilon."""
    epsilon, root = np.float32(1e-5), np.sqrt(np.float32(1e-5))
    text = """<ir_version: 9, opset_import: ["" : 18]> g (float[4] x) => (float[4] y)
        { v = Max (x, e) r = Sqrt (v) m = LessOrEqual (r, c) y = Where (m, z, r) }"""
    made = onnx.parser.parse_model(text)
    stored = {"e": epsilon, "c": root, "z": np.float32(0)}
    made.graph.initializer.extend(numpy_helper.from_array(np.array(v), name) for name, v in stored.items())
    case = compiled(made)
    case.agree({"x": np.array([0, 1e-6, 1e-5, 1], np.float32)}, tolerance=0)
