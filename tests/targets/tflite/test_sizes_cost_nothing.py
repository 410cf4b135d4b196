"""What asks a tensor for its sizes reads none of its numbers."""

from __future__ import annotations

from pathlib import Path

from convertkit.targets.tflite.costs.estimate import estimates
from tests.targets.tflite.compiled import compiled


def test_a_shape_is_estimated(tmp_path: Path) -> None:
    case = compiled("""<ir_version: 8, opset_import: ["" : 21]> g (float[n,m,6] x) => (float[k] y)
        <int64[1] one = {-1}> { r = Relu(x)  s = Shape<end=1>(r)  t = Concat<axis=0>(one, s)  u = Reshape(r, t)
        v = Transpose(u)  y = Reshape(v, one) }""")
    assert case.operators["SHAPE"] == 1
    case.compiled.write(tmp_path / "m.tflite")
    (found,) = estimates(tmp_path / "m.tflite", ["arm64-a76"])
    assert {node.ms for node in found.nodes if node.kind == "SHAPE"} == {0.0}
    assert found.ms > 0
