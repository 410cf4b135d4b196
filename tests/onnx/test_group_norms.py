"""GroupNormalization-18, which ONNX took back and ONNX Runtime still runs: against ONNX Runtime on it as it was."""

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.load import load_model

X = np.random.default_rng(0).normal(0.3, 2, (2, 6, 3, 4)).astype(np.float32)
NORM = "GroupNormalization <{}> (x, scale, bias)"
INPUTS = "float[N, 6, H, W] x, float[{0}] scale, float[{0}] bias"
PLAIN = f"g ({INPUTS}) => (float[N, 6, H, W] y) {{ y = {NORM} }}"
INNER = f"{{ t = {NORM} }}"
BRANCHED = (
    f"g ({INPUTS}) => (float[N, 6, H, W] y) {{ total = ReduceSum <keepdims = 0> (x) zero = Sub (total, total) "
    f"rises = GreaterOrEqual (total, zero) y = If (rises) "
    f"<then_branch = a () => (float[N, 6, H, W] t) {INNER}, else_branch = b () => (float[N, 6, H, W] t) {INNER}> }}"
)


CASES = [(2, 18, ""), (3, 20, ", epsilon = 0.1"), (6, 19, ""), (1, 18, "")]


@pytest.mark.parametrize("text", [PLAIN, BRANCHED], ids=["plain", "in-a-branch"])
@pytest.mark.parametrize(("groups", "opset", "rest"), CASES)
def test_scale_and_bias_are_those_of_groups(text, groups, opset, rest, tmp_path):
    head = f'<ir_version: 8, opset_import: ["" : {opset}]> '
    attributes = f"num_groups = {groups}{rest}"
    old = onnx.parser.parse_model(head + text.replace(NORM, NORM.format(attributes)).replace("{0}", str(groups)))
    onnx.save(old, tmp_path / "old.onnx")
    feed = {"x": X, "scale": np.linspace(0.5, 2, groups, dtype=np.float32), "bias": np.full(groups, -0.7, np.float32)}
    canonical = canonicalize(load_model(tmp_path / "old.onnx"))
    assert "GroupNormalization" not in {node.op_type for node in canonical.graph.all_nodes()}
    found = _run(ir.to_proto(canonical), feed)
    np.testing.assert_allclose(found, _run(old, feed), rtol=1e-5, atol=3e-6)


def _run(proto: onnx.ModelProto, feed: dict[str, np.ndarray]) -> np.ndarray:
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feed)[0]
