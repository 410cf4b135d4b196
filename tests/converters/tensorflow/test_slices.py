"""Slices whose axes tf2onnx names twice, as ONNX Runtime refuses them."""

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from convertkit.converters.tensorflow.slices import drop_whole_axes

END = 1_000_000_000


def model(axes: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 18]>
        g (float[n,4,1,6] x) => (float[a,b,c,d] y)
        <int64[5] starts = {{0, {END}, 0, 0, 1}}, int64[5] ends = {{{END}, -{END}, {END}, {END}, -1}},
         int64[5] axes = {{{axes}}}, int64[5] steps = {{1, -2, 1, 1, 1}}>
        {{ y = Slice(x, starts, ends, axes, steps) }}""")


def test_an_axis_that_is_taken_whole_and_again_is_taken_once():
    proto = model("0, 1, 2, 3, 3")
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.Fail, match="more than once"):
        ort.InferenceSession(proto.SerializeToString())
    made = ir.from_proto(proto)
    drop_whole_axes(made)
    session = ort.InferenceSession(ir.to_proto(made).SerializeToString())
    x = np.arange(48, dtype=np.float32).reshape(2, 4, 1, 6)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], x[:, ::-2, :, 1:-1])


@pytest.mark.parametrize(
    ("starts", "ends", "axes"), [("0, 1", f"{END}, 3", "0, 1"), ("0, 0", f"{END}, {END}", "0, 0")], ids=["two", "whole"]
)
def test_others_stay(starts, ends, axes):
    made = ir.from_proto(
        onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 18]>
        g (float[n,4] x) => (float[a,b] y) <int64[2] starts = {{{starts}}}, int64[2] ends = {{{ends}}},
        int64[2] axes = {{{axes}}}, int64[2] steps = {{1, 1}}> {{ y = Slice(x, starts, ends, axes, steps) }}""")
    )
    drop_whole_axes(made)
    assert [value.name for value in made.graph.node(0).inputs] == ["x", "starts", "ends", "axes", "steps"]
