"""A border of zeros in front of a MaxPool is not the pool's own padding, whatever ONNX Runtime optimises."""

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from convertkit.onnx.canonical import canonicalize
from convertkit.targets.onnxruntime.borders import keep_zero_borders

POOL = "y = MaxPool<kernel_shape = [2, 3], strides = [2, 1]>"
BACK = "t = Transpose<perm = [0, 3, 1, 2]>"
BODIES = {
    "zeros of no name": f"p = Pad(x, pads) {POOL}(p)",
    "zeros": f"p = Pad(x, pads, zero) {POOL}(p)",
    "up to the whole window": "p = Pad(x, pads) y = MaxPool<kernel_shape = [2, 2], ceil_mode = 1, strides = [3, 3]>(p)",
    "in halves": f"p = Pad(x, pads) h = Cast<to = 10>(p) z = {POOL[4:]}(h) y = Cast<to = 1>(z)",
    "a border wider than the window": f"r = Relu(x) n = Neg(r) p = Pad(n, pads) {POOL}(p)",
    "between moved axes": f"m = Transpose<perm = [0, 2, 3, 1]>(x) p = Pad(m, moved) {BACK}(p) {POOL}(t)",
    "windows of nothing but border": "r = Relu(x) p = Pad(r, wide) y = MaxPool<kernel_shape = [2, 2]>(p)",
}
MOVED = f"r = Relu(x) m = Transpose<perm = [0, 2, 3, 1]>(r) p = Pad(m, moved) {BACK}(p) {POOL}(t)"
FUSED = "r = Relu(x) p = Pad(r, pads) y = MaxPool<kernel_shape = [2, 3], strides = [2, 1]>(p)"


def delivered(body: str, opset: int) -> onnx.ModelProto:
    head = f'<ir_version: 8, opset_import: ["" : {opset}]> g (float[2,3,4,5] x) => (float[2,3,h,w] y) '
    constants = (
        "<int64[8] pads = {0,0,1,1,0,0,1,2}, int64[8] wide = {0,0,3,0,0,0,0,0}, int64[8] moved = {0,1,1,0,0,1,2,0}, "
        "float zero = {0.0}>"
    )
    parsed = onnx.parser.parse_model(f"{head}{constants} {{ {body} }}")
    model = canonicalize(ir.from_proto(parsed)) if opset >= 18 else ir.from_proto(parsed)
    keep_zero_borders(model)
    keep_zero_borders(model)  # does nothing more
    return ir.to_proto(model)


def answers(made: onnx.ModelProto, x: np.ndarray) -> list[np.ndarray]:
    """Without and with ONNX Runtime's optimisations."""
    found = []
    for level in (ort.GraphOptimizationLevel.ORT_DISABLE_ALL, ort.GraphOptimizationLevel.ORT_ENABLE_ALL):
        options = ort.SessionOptions()
        options.graph_optimization_level = level
        session = ort.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
        found.append(session.run(None, {"x": x})[0])
    return found


@pytest.mark.parametrize("opset", [13, 18, 21])
@pytest.mark.parametrize("body", BODIES)
def test_zeros_beside_negative_values_stay(body, opset):
    made = delivered(BODIES[body], opset)
    onnx.checker.check_model(made, full_check=True)
    x = -1 - np.random.default_rng(0).uniform(size=(2, 3, 4, 5)).astype(np.float32)
    plain, optimised = answers(made, x)
    assert np.array_equal(plain, optimised)


@pytest.mark.parametrize("body", [FUSED, MOVED])
def test_what_is_never_negative_keeps_the_faster_form(body):
    made = delivered(body, 18)
    assert all(len(node.input) < 4 for node in made.graph.node)
    plain, optimised = answers(made, np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32))
    assert np.array_equal(plain, optimised)


def test_other_pads_stay_as_they_are():
    made = delivered('p = Pad<mode = "edge">(x, pads) y = MaxPool<kernel_shape = [2, 3]>(p)', 18)
    assert len(made.graph.node[0].input) == 2
