"""Sequences through a Loop and an If keep their type in canonical ONNX."""

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
from onnx import TensorProto, helper

from convertkit.onnx.canonical import canonicalize


def gathered_rows():
    """A sequence of rows that a Loop collects; an If inserts the row or its negative. Nothing inside is typed."""
    untyped = onnx.ValueInfoProto
    branches = {
        name: helper.make_graph(
            [
                helper.make_node(kind, ["row"], [f"{name}_row"]),
                helper.make_node("SequenceInsert", ["kept", f"{name}_row"], [name]),
            ],
            name,
            [],
            [untyped(name=name)],
        )
        for name, kind in (("then_branch", "Neg"), ("else_branch", "Abs"))
    }
    body = helper.make_graph(
        [
            helper.make_node("Gather", ["x", "step"], ["row"]),
            helper.make_node("ReduceMax", ["row"], ["most"], keepdims=0),
            helper.make_node("Cast", ["most"], ["positive"], to=TensorProto.BOOL),
            helper.make_node("Identity", ["carried"], ["kept"]),
            helper.make_node("If", ["positive"], ["more"], **branches),
            helper.make_node("Identity", ["going"], ["goes"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("step", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            untyped(name="carried"),
        ],
        [untyped(name="goes"), untyped(name="more")],
    )
    nodes = [
        helper.make_node("Shape", ["x"], ["sizes"], end=1),
        helper.make_node("Squeeze", ["sizes"], ["rows"]),
        helper.make_node("SequenceEmpty", [], ["none"]),
        helper.make_node("Loop", ["rows", "", "none"], ["all"], body=body),
        helper.make_node("ConcatFromSequence", ["all"], ["y"], axis=0),
    ]
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", ["n", 3]), ("y", None))
    )
    graph = helper.make_graph(nodes, "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def test_a_sequence_that_a_loop_collects_stays_one() -> None:
    proto = gathered_rows()
    feed = {"x": np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)}
    expected = ort.InferenceSession(proto.SerializeToString()).run(None, feed)
    model = ir.to_proto(canonicalize(ir.from_proto(proto)))
    np.testing.assert_array_equal(ort.InferenceSession(model.SerializeToString()).run(None, feed)[0], expected[0])
