"""Where between flags, which ONNX Runtime has no kernel of."""

from __future__ import annotations

import numpy as np
import onnx.parser
import onnx_ir as ir
import onnxruntime as ort

from convertkit.onnx.canonical import canonicalize


def test_flags_are_chosen_by_flags() -> None:
    text = """<ir_version: 8, opset_import: ["" : 18]>
        g (bool[2,1] c, bool[2,3] x, bool[3] y, float[2,3] f) => (bool[2,3] z, float[2,3] w)
        { z = Where(c, x, y) w = Where(z, f, f) }"""
    model = canonicalize(ir.from_proto(onnx.parser.parse_model(text)))
    assert [node.op_type for node in model.graph if node.op_type == "Where"] == ["Where"]
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString())
    drawn = np.random.default_rng(0)
    feed = {name: drawn.random(shape) > 0.5 for name, shape in {"c": (2, 1), "x": (2, 3), "y": (3,)}.items()}
    flags = session.run(["z"], {**feed, "f": drawn.random((2, 3)).astype(np.float32)})[0]
    np.testing.assert_array_equal(flags, np.where(feed["c"], feed["x"], feed["y"]))
