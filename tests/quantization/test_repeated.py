"""Repeated places become a look-up, of as many axes as the value has."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper, parser, shape_inference

from convertkit.quantization.prepare.repeated import repeated_places

X = np.random.default_rng(0).normal(size=(2, 3, 4, 5)).astype("f4")


def model(axis: int, wide: list[int], result: list[int]):
    nodes = "u = Unsqueeze (x, axis) e = Expand (u, wide) y = Reshape (e, result)"
    proto = parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> g (float[2,3,4,5] x) => (y) {{ {nodes} }}')
    stored = {"axis": [axis], "wide": wide, "result": result}
    proto.graph.initializer.extend(numpy_helper.from_array(np.array(each), name) for name, each in stored.items())
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, None))
    return shape_inference.infer_shapes(proto)


def rewritten(proto) -> ir.Model:
    found = ir.from_proto(proto)
    repeated_places(found)
    return found


@pytest.mark.parametrize(
    ("axis", "wide", "result"),
    [
        (2, [2, 3, 2, 4, 5], [2, 6, 4, 5]),  # each head twice
        (1, [2, 2, 3, 4, 5], [2, 6, 4, 5]),  # all heads, and once more
        (4, [2, 3, 4, 5, 3], [2, 3, 4, 15]),
        (0, [2, 2, 3, 4, 5], [4, 3, 4, 5]),
    ],
)
def test_each_place_as_often_as_it_was_repeated(axis, wide, result) -> None:
    proto = model(axis, wide, result)
    after = rewritten(proto)
    assert list(after.graph)[-1].op_type == "Gather"
    old, new = (
        ort.InferenceSession(each.SerializeToString()).run(None, {"x": X}) for each in (proto, ir.to_proto(after))
    )
    np.testing.assert_array_equal(new[0], old[0])


@pytest.mark.parametrize(
    ("axis", "wide", "result"),
    [
        (2, [2, 3, 2, 4, 5], [2, 3, 8, 5, 1]),  # another number of axes
        (2, [2, 3, 2, 4, 5], [6, 2, 4, 5]),  # axes that change places
        (2, [2, 3, 1, 4, 5], [2, 3, 4, 5]),  # nothing is repeated
    ],
)
def test_what_is_more_than_a_repetition_stays(axis, wide, result) -> None:
    assert list(rewritten(model(axis, wide, result)).graph)[-1].op_type == "Reshape"
