"""The larger and the smaller of int64 numbers, which ONNX Runtime's kernels confuse on some processors."""

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

import convertkit
from convertkit.onnx.canonical import canonicalize
from convertkit.targets.onnxruntime.long_extremes import write_out_long_extremes

LOW, HIGH = -(2**32) - 7, 2**32 + 5
CASES = {
    "Max (x, z)": np.maximum,
    "Min (x, z)": np.minimum,
    "Max (x, z, w)": lambda x, z: np.maximum(np.maximum(x, z), x - z),
    "Max (z, x)": np.maximum,
    "Min (z, x, w)": lambda x, z: np.minimum(np.minimum(x, z), x - z),
    "Max (x)": lambda x, z: x,
    "Clip (x, low, high)": lambda x, z: np.clip(x, LOW, HIGH),
    "Clip (x, , high)": lambda x, z: np.minimum(x, HIGH),
    "ReduceMax (x, last)": lambda x, z: x.max(1, keepdims=True),
    "ReduceMin <keepdims = 0> (x, last)": lambda x, z: x.min(1),
    "ReduceMax <keepdims = 0> (x)": lambda x, z: x.max(),
    "ReduceMin (x, first)": lambda x, z: x.min(0, keepdims=True, initial=2**63 - 1),
    "ReduceMax <keepdims = 0> (x, first)": lambda x, z: x.max(0, initial=-(2**63)),
    "ReduceMax <keepdims = 0, noop_with_empty_axes = 1> (x, last)": lambda x, z: x.max(1),
}


def model(call: str) -> onnx.ModelProto:
    head = '<ir_version: 9, opset_import: ["" : 20]> g (int64[n,7] x, int64[7] z) => (int64[] y)'
    stored = f"int64 low = {{{LOW}}}, int64 high = {{{HIGH}}}, int64[1] last = {{-1}}, int64[1] first = {{-2}}"
    proto = onnx.parser.parse_model(f"{head} <{stored}> {{ w = Sub (x, z)  y = {call} }}")
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    used = {name for node in proto.graph.node for name in node.input} | set("w")
    for each in [each for each in proto.graph.initializer if each.name not in used]:
        proto.graph.initializer.remove(each)
    return proto


@pytest.mark.parametrize("call", CASES)
def test_the_right_one_is_taken(call: str) -> None:
    written = canonicalize(ir.from_proto(model(call)))
    stated = written.graph.outputs[0].shape
    write_out_long_extremes(written)
    assert written.graph.outputs[0].shape == stated
    proto = ir.to_proto(written)
    assert not {node.op_type for node in proto.graph.node} & {"Max", "Min", "Clip", "ReduceMax", "ReduceMin"}
    onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True)  # what is stated is so
    session, rng = ort.InferenceSession(proto.SerializeToString()), np.random.default_rng(0)
    for bits in (31, 32, 33, 40, 61):
        x, z = rng.integers(-(2**bits), 2**bits, (500, 7)), rng.integers(-(2**bits), 2**bits, 7)
        (found,) = session.run(None, {"x": x, "z": z})
        assert np.array_equal(found, CASES[call](x, z))
    if "first" in call:
        assert np.array_equal(session.run(None, {"x": x[:0], "z": z})[0], CASES[call](x[:0], z))


def test_what_reduces_nothing_keeps_its_operator() -> None:
    text = '<ir_version: 9, opset_import: ["" : 20]> g (int64[n,7] x) => (int64[n,7] y)'
    written = ir.from_proto(onnx.parser.parse_model(f"{text} {{ y = ReduceMax <noop_with_empty_axes = 1> (x) }}"))
    write_out_long_extremes(written)
    assert [node.op_type for node in written.graph] == ["ReduceMax"]


def test_branches_have_it_too() -> None:
    text = '<ir_version: 9, opset_import: ["" : 20]> g (bool c, int64[3] x, int64[3] z) => (int64[3] y)'
    larger, smaller = (f"{word} () => (int64[3] {word}) {{ {word} = {word} (x, z) }}" for word in ("Max", "Min"))
    body = f"y = If (c) <then_branch = {larger}, else_branch = {smaller}>"
    written = canonicalize(ir.from_proto(onnx.parser.parse_model(f"{text} {{ {body} }}")))
    write_out_long_extremes(written)
    assert not {node.op_type for node in written.graph.all_nodes()} & {"Max", "Min"}
    session = ort.InferenceSession(ir.to_proto(written).SerializeToString())
    x = np.array([2**33 + 1, 5, -(2**40)])
    z = x + np.array([2**31, -(2**31), 3 * 2**31])
    for c, choose in ((True, np.maximum), (False, np.minimum)):
        (found,) = session.run(None, {"c": np.array(c), "x": x, "z": z})
        assert np.array_equal(found, choose(x, z))


@pytest.mark.parametrize("size", ["Shape", "Size"])
def test_sizes_keep_their_operators(size: str) -> None:
    text = '<ir_version: 9, opset_import: ["" : 20]> g (float[n,m] x) => (int64[] y) <int64 one = {1}>'
    proto = onnx.parser.parse_model(f"{text} {{ s = {size} (x)  t = Add (s, one)  y = Max (t, one) }}")
    written = canonicalize(ir.from_proto(proto))
    write_out_long_extremes(written)
    assert "Max" in {node.op_type for node in written.graph}


def test_an_export_has_it(tmp_path) -> None:
    onnx.save(model("Max (x, z)"), tmp_path / "model.onnx")
    made = convertkit.export(tmp_path / "model.onnx", "onnxruntime", output=tmp_path / "out")
    x, z = np.full((1, 7), 2**33 + 1), np.full(7, 2**33 + 2**31 + 1)
    assert np.array_equal(made.run({"x": x, "z": z})["y"], np.maximum(x, z))
