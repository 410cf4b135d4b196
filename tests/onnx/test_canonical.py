"""Canonical ONNX: opset and IR in the range that runtimes load, interface kept, QDQ kept, same numbers."""

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import convertkit
from convertkit.artifact import Artifact
from convertkit.errors import UsageError
from convertkit.onnx.canonical import canonicalize, freeze_dims
from convertkit.onnx.runner import OnnxRunner
from convertkit.onnx.save import save_model
from convertkit.onnx.specs import interface

RNG = np.random.default_rng(3)


def clip_model(opset, ir_version, batch="N", as_input=False):
    """Gemm and a Clip whose bounds were attributes before opset 11."""
    weight = numpy_helper.from_array(RNG.standard_normal((4, 3)).astype(np.float32), "w")
    bias = numpy_helper.from_array(np.array([0.5, -0.5, 0.1], np.float32), "b")
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 4])]
    if as_input:
        inputs += [helper.make_tensor_value_info("w", TensorProto.FLOAT, [4, 3])]
        inputs += [helper.make_tensor_value_info("b", TensorProto.FLOAT, [3])]
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"]),
        helper.make_node("Clip", ["h"], ["y"], min=-0.5, max=1.5)
        if opset < 11
        else helper.make_node("Relu", ["h"], ["y"]),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 3])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [weight, bias])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)


def run(path, model, feed):
    inputs, outputs = interface(model)
    with OnnxRunner(Artifact(path, "onnx", inputs, outputs, "")) as runner:
        return runner.run(feed)


@pytest.mark.parametrize(
    ("opset", "ir_version", "as_input"), [(7, 3, True), (9, 4, False), (13, 7, False), (18, 8, False), (26, 13, False)]
)
def test_any_age_becomes_canonical_with_the_same_numbers(tmp_path, opset, ir_version, as_input):
    proto = clip_model(opset, ir_version, as_input=as_input)
    onnx.save(proto, tmp_path / "old.onnx")
    feed = {"x": RNG.standard_normal((5, 4)).astype(np.float32)}
    before = run(tmp_path / "old.onnx", ir.from_proto(proto), feed)
    model = canonicalize(ir.from_proto(proto))
    save_model(model, tmp_path / "new.onnx", "test")
    assert 18 <= model.graph.opset_imports[""] <= 26
    assert 8 <= model.ir_version <= 13
    assert [value.name for value in model.graph.inputs] == ["x"]
    after = run(tmp_path / "new.onnx", model, feed)
    np.testing.assert_allclose(after["y"], before["y"], rtol=1e-6, atol=1e-6)


def test_saving_twice_gives_the_same_bytes(tmp_path):
    proto = clip_model(13, 7)
    first, second = (
        save_model(canonicalize(ir.from_proto(proto)), tmp_path / f"{index}.onnx", "test").sha256 for index in range(2)
    )
    assert first == second


def test_constant_weights_behind_dequantize_stay_integers(tmp_path):
    weight = numpy_helper.from_array(RNG.integers(-127, 128, (4, 3)).astype(np.int8), "w8")
    scale = numpy_helper.from_array(np.float32(0.02), "s")
    zero = numpy_helper.from_array(np.int8(0), "z")
    nodes = [
        helper.make_node("DequantizeLinear", ["w8", "s", "z"], ["w"]),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3])],
        [weight, scale, zero],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    model = canonicalize(ir.from_proto(proto))
    assert [node.op_type for node in model.graph] == ["DequantizeLinear", "MatMul"]


def test_frozen_dimensions_are_fixed_and_unknown_names_refused():
    model = ir.from_proto(clip_model(18, 8, batch=None))
    with pytest.raises(UsageError, match="it has: x_0"):
        freeze_dims(model, {"batch": 2})
    freeze_dims(model, {"x_0": 2})
    assert interface(model)[0][0].shape == (2, 4)


@pytest.mark.parametrize("shared", [False, True])
def test_large_weights_that_are_only_rearranged_are_folded_unless_others_read_them(tmp_path, shared):
    """As exporters leave the gates of recurrent layers; what something else reads would be in the file twice."""
    constants = {
        "w": RNG.standard_normal((160, 80)).astype(np.float32),
        "middle": np.array([80]),
        "low": np.array([0]),
        "high": np.array([160]),
    }
    nodes = [
        helper.make_node("Slice", ["w", "middle", "high", "low"], ["first"]),
        helper.make_node("Slice", ["w", "low", "middle", "low"], ["last"]),
        helper.make_node("Concat", ["first", "last"], ["joined"], axis=0),
        helper.make_node("MatMul", ["x", "w" if shared else "joined"], ["h"]),
        helper.make_node("Add", ["h", "joined"] if shared else ["h", "h"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [160, 160])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [160, 80])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    feed = {"x": RNG.standard_normal((160, 160)).astype(np.float32)}
    before = ReferenceEvaluator(proto).run(None, feed)[0]
    model = canonicalize(ir.from_proto(proto))
    save_model(model, tmp_path / "new.onnx", "test")
    rearranging = ["Slice", "Slice", "Concat"] if shared else []
    assert [node.op_type for node in model.graph] == [*rearranging, "MatMul", "Add"]
    np.testing.assert_allclose(run(tmp_path / "new.onnx", model, feed)["y"], before, rtol=1e-5, atol=1e-4)


def test_a_weight_that_is_an_output_stays_one():
    """The optimizer folds the norm into the weight and drops the old one."""
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 20]>
        g (float[1,3,4] x) => (float[1,2,4] y, float[2,3,1] w)
        <float[2,3,1] w = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}, float[2] s = {1.5, 0.5}, float[2] b = {0.5, 1.0},
         float[2] m = {1.0, 0.6}, float[2] v = {0.8, 1.8}> {
        c = Conv(x, w)  y = BatchNormalization(c, s, b, m, v) }""")
    made = ir.to_proto(canonicalize(ir.from_proto(model)))
    session = ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(["w"], {"x": np.zeros((1, 3, 4), np.float32)})
    np.testing.assert_array_equal(found.reshape(-1), [1, 2, 3, 4, 5, 6])


def test_bounds_of_joined_clips_stay():
    """The optimizer joins two Clips, and a Clip and a Relu, of one input; it loses the second pair of bounds."""
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 20]>
        g (float[6] x) => (float[6] y, float[6] z)
        <float a = {0.0}, float b = {6.0}, float c = {-1.0}, float d = {1.0}, float e = {-2.0}, float f = {4.0}> {
        p = Clip(x, a, b)  q = Clip(x, e, f)  y = Relu(q)  z = Clip(p, c, d) }""")
    made = ir.to_proto(canonicalize(ir.from_proto(model)))
    x = np.array([-3, -0.5, 0.5, 2, 5, 8], np.float32)
    session = ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    found = session.run(["y", "z"], {"x": x})
    np.testing.assert_array_equal(found, [np.clip(x, 0, 4), np.clip(x, 0, 1)])


def test_a_clip_behind_a_loop_has_a_type():
    """The optimizer looks for the type of what it clips, which ONNX's inference tells of a loop, and it does not."""
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 20]>
        g (float[3] x) => (float[3] y) <int64 k = {2}, bool c = {1}, float a = {0.0}, float b = {6.0}> {
        v = Loop(k, c, x) <body = t (int64 i, bool go, float[3] s) => (bool on, float[3] o) {
            on = Identity(go)  o = Add(s, x) }>
        r = Relu(v)  y = Clip(r, a, b) }""")
    made = ir.to_proto(canonicalize(ir.from_proto(model)))
    session = ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"x": np.array([-1, 1, 3], np.float32)})
    np.testing.assert_array_equal(found, [0, 3, 6])


@pytest.mark.parametrize("declared", ["", ", float[p,q,h,w] r"], ids=["", "declared"])
def test_sizes_that_only_the_whole_graph_tells_are_told(declared):
    """Node by node a size that is computed has a name of its own; what computes it says that it is an input's."""
    model = onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 18]>
        g (float[N,4,5,6] x) => (float[a,b,c,d] y)
        <int64[1] zero = {{0}}, int64[1] two = {{2}}, int64[2] size = {{41, 43}}{declared}> {{
        shape = Shape(x)  kept = Slice(shape, zero, two)  sizes = Concat<axis = 0>(kept, size)
        r = Resize<mode = "nearest">(x, , , sizes)  y = Relu(r) }}""")
    made = canonicalize(ir.from_proto(model))
    (resized,) = (node.outputs[0] for node in made.graph if node.op_type == "Resize")
    assert list(resized.shape)[1:] == [4, 41, 43]


@pytest.mark.parametrize("name", ["1", "image"])
def test_dynamic_dimensions_of_an_input_that_is_called_by_a_number(name: str, tmp_path: Path) -> None:
    """The dimensions are called 1_2 and 1_3, which are no numbers; and a kernel's size may be one of them."""
    text = (
        f'<ir_version: 8, opset_import: ["" : 17]> g (float[1,3,5,5] x, float[1,3,?,?] "{name}") => (float[1,1,5,5] y)'
        f' {{ y = Conv <auto_pad = "SAME_LOWER"> (x, "{name}") }}'
    )
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    done = convertkit.export(path, "onnxruntime", output=tmp_path / "out")
    (_, kernel) = done.interface.inputs
    assert tuple(kernel.shape) == (1, 3, f"{name}_2", f"{name}_3")
    for size in (3, 5):
        feed = {"x": np.ones((1, 3, 5, 5), np.float32), name: np.ones((1, 3, size, size), np.float32)}
        (made,) = done.run(feed).values()
        assert made.shape == (1, 1, 5, 5)
        assert made.max() == 3 * size * size
