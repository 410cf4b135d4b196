"""Blocks of pictures whose elements ONNX Runtime moves in no kernel."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx.reference import ReferenceEvaluator

from convertkit.targets.onnxruntime.depths import write_out_depths


@pytest.mark.parametrize("sizes", ["2,8,3,5", "n,8,3,5", "2,8,h,5"])
@pytest.mark.parametrize("kind", ["int32", "int64", "bool"])
@pytest.mark.parametrize(
    "operator",
    ["DepthToSpace <blocksize = 2>", 'DepthToSpace <blocksize = 2, mode = "CRD">', "SpaceToDepth <blocksize = 2>"],
)
def test_blocks_are_moved(operator: str, kind: str, sizes: str) -> None:
    given = sizes.replace("3,5", "4,6").replace("h,5", "h,6") if operator.startswith("Space") else sizes
    proto = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 18]> g ({kind}[{given}] x) => ({kind}[a,b,c,d] y) '
        f"{{ y = {operator} (x) }}"
    )
    shape = [{"n": 3, "h": 4}.get(size) or int(size) for size in given.split(",")]
    x = (
        np.random.default_rng(0).integers(-9, 9, shape) > 0
        if kind == "bool"
        else np.arange(np.prod(shape)).reshape(shape)
    )
    x = np.asarray(x).astype(kind)
    model = ir.from_proto(proto)
    write_out_depths(model)
    assert [node.op_type for node in model.graph] == ["Reshape", "Transpose", "Reshape"]
    found = ort.InferenceSession(ir.to_proto(model).SerializeToString()).run(None, {"x": x})[0]
    assert np.array_equal(found, ReferenceEvaluator(proto).run(None, {"x": x})[0])


def test_what_has_a_kernel_stays() -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (float[1,8,3,5] x) => (float[1,2,6,10] y) '
        "{ y = DepthToSpace <blocksize = 2> (x) }"
    )
    model = ir.from_proto(proto)
    write_out_depths(model)
    assert [node.op_type for node in model.graph] == ["DepthToSpace"]
