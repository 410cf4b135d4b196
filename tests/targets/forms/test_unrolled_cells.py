"""Recurrent layers step by step compute what ONNX Runtime's do."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from convertkit.errors import Unsupported
from convertkit.targets.forms.unrolled_cells import write_cells, write_single_steps

STEPS, BATCH, INPUTS, HIDDEN = 5, 3, 4, 6
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
OUTPUTS = {"LSTM": ["y", "y_h", "y_c"], "GRU": ["y", "y_h"], "RNN": ["y", "y_h"]}


def layer(
    kind: str, *, bias: bool = True, states: bool = True, steps: int = STEPS, **attributes: object
) -> onnx.ModelProto:
    rng = np.random.default_rng(7)
    count = 2 if attributes.get("direction") == "bidirectional" else 1
    width = GATES[kind] * HIDDEN
    shapes = {"w": (count, width, INPUTS), "r": (count, width, HIDDEN), **({"b": (count, 2 * width)} if bias else {})}
    given = {"x": (BATCH, steps, INPUTS) if attributes.get("layout") else (steps, BATCH, INPUTS)}
    if states:
        first = (BATCH, count, HIDDEN) if attributes.get("layout") else (count, BATCH, HIDDEN)
        given |= {"h": first, **({"c": first} if kind == "LSTM" else {})}
    names = ["x", "w", "r", "b" if bias else "", "", *(name for name in ("h", "c") if name in given)]
    node = helper.make_node(kind, names, OUTPUTS[kind], name="layer", hidden_size=HIDDEN, **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in given.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in OUTPUTS[kind]],
        [
            numpy_helper.from_array(rng.uniform(-0.5, 0.5, shape).astype(np.float32), name)
            for name, shape in shapes.items()
        ],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return onnx.shape_inference.infer_shapes(made)


def computed(model: onnx.ModelProto) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(1)
    shapes = {each.name: [BATCH if size == "N" else size for size in each.shape] for each in session.get_inputs()}
    return session.run(None, {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()})


FORMS = [
    *((kind, {"direction": way}) for kind in GATES for way in ("forward", "reverse", "bidirectional")),
    ("GRU", {"linear_before_reset": 1}), ("GRU", {"linear_before_reset": 1, "direction": "bidirectional"}),
    *((kind, {"bias": False, "states": False}) for kind in GATES), ("GRU", {"bias": False, "linear_before_reset": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "stated"), FORMS, ids=str)
def test_steps_compute_what_the_layer_does(kind, stated):
    source = layer(kind, **stated)
    model = ir.from_proto(source)
    write_cells(model, "a compiler")
    assert not {node.op_type for node in model.graph} & set(GATES)
    for wanted, found in zip(computed(source), computed(ir.to_proto(model)), strict=True):
        np.testing.assert_allclose(found, wanted, atol=2e-6)


@pytest.mark.parametrize("states", [True, False])
@pytest.mark.parametrize("kind", GATES)
def test_the_batch_may_be_known_at_run_time_alone(kind, states):
    source = layer(kind, states=states)
    model = ir.from_proto(source)
    for value in (*model.graph.inputs, *model.graph.outputs):
        value.shape = ir.Shape(["N" if size == BATCH else size for size in value.shape or ()])
    write_cells(model, "a compiler")
    assert kind in {node.op_type for node in model.graph}
    write_cells(model, "a compiler", free_batch=True)
    assert not {node.op_type for node in model.graph} & set(GATES)
    for wanted, found in zip(computed(source), computed(ir.to_proto(model)), strict=True):
        np.testing.assert_allclose(found, wanted, atol=2e-6)


def test_the_batch_may_stand_first():
    inner, outer = layer("GRU"), layer("GRU", layout=1)
    model = ir.from_proto(outer)
    write_cells(model, "a compiler")
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(1)
    feed = {each.name: rng.standard_normal(each.shape).astype(np.float32) for each in session.get_inputs()}
    reference = onnxruntime.InferenceSession(inner.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = reference.run(None, {name: value.transpose(1, 0, 2) for name, value in feed.items()})
    found = session.run(None, feed)
    np.testing.assert_allclose(found[0], wanted[0].transpose(2, 0, 1, 3), atol=2e-6)
    np.testing.assert_allclose(found[1], wanted[1].transpose(1, 0, 2), atol=2e-6)


@pytest.mark.parametrize(
    ("stated", "reason"),
    [
        ({"clip": 1.0}, "clip"),
        ({"activations": ["Relu", "Tanh", "Tanh"]}, "activations Relu, Tanh, Tanh"),
        ({"input_forget": 1}, "input_forget"),
    ],
)
def test_what_no_form_computes_is_refused(stated, reason):
    with pytest.raises(Unsupported, match=f"layer.*a compiler has no such layer.*{reason}"):
        write_cells(ir.from_proto(layer("LSTM", **stated)), "a compiler")


@pytest.mark.parametrize(
    ("place", "array", "reason"),
    [(4, np.full(BATCH, STEPS - 1, np.int32), "lengths of sequences"), (7, np.ones((1, 3 * HIDDEN)), "peepholes")],
)
def test_inputs_that_no_form_reads_are_refused(place, array, reason):
    source = layer("LSTM")
    node = source.graph.node[0]
    node.input.extend([""] * (place + 1 - len(node.input)))
    node.input[place] = "more"
    source.graph.initializer.append(numpy_helper.from_array(array, "more"))
    with pytest.raises(Unsupported, match=reason):
        write_cells(ir.from_proto(source), "a compiler")


def test_lengths_that_are_all_steps_say_nothing():
    source = layer("GRU")
    source.graph.node[0].input[4] = "lengths"
    source.graph.initializer.append(numpy_helper.from_array(np.full(BATCH, STEPS, np.int32), "lengths"))
    model = ir.from_proto(source)
    write_cells(model, "a compiler")
    for wanted, found in zip(computed(source), computed(ir.to_proto(model)), strict=True):
        np.testing.assert_allclose(found, wanted, atol=2e-6)


def test_no_steps_are_refused():
    model = ir.from_proto(layer("RNN"))
    model.graph.inputs[0].shape = ir.Shape([0, BATCH, INPUTS])
    with pytest.raises(Unsupported, match="with 0 steps"):
        write_cells(model, "a compiler")


def test_a_very_long_layer_is_refused(monkeypatch):
    monkeypatch.setattr("convertkit.targets.forms.unrolled_cells.MOST_STEPS", STEPS - 1)
    with pytest.raises(Unsupported, match="5 steps, more than 4"):
        write_cells(ir.from_proto(layer("RNN")), "a compiler")


@pytest.mark.parametrize(("kind", "stated"), FORMS, ids=str)
def test_one_step_is_written_out(kind, stated):
    source = layer(kind, steps=1, **stated)
    model = ir.from_proto(source)
    write_single_steps(model)
    assert not {node.op_type for node in model.graph} & set(GATES)
    for wanted, found in zip(computed(source), computed(ir.to_proto(model)), strict=True):
        np.testing.assert_allclose(found, wanted, atol=2e-6)


@pytest.mark.parametrize(
    ("kind", "stated"),
    [("GRU", {"steps": 2}), ("GRU", {"steps": 2, "layout": 1}), ("LSTM", {"steps": 1, "clip": 1.0})],
)
def test_more_steps_and_unusual_layers_are_left(kind, stated):
    source = layer(kind, **stated)
    model = ir.from_proto(source)
    write_single_steps(model)
    assert ir.to_proto(model).graph.node == source.graph.node


def test_layers_with_computed_weights_are_left():
    source = layer("RNN", steps=1)
    (stored,) = [each for each in source.graph.initializer if each.name == "w"]
    stored.name = "halves"
    source.graph.node.insert(0, helper.make_node("Neg", ["halves"], ["w"]))
    model = ir.from_proto(source)
    write_single_steps(model)
    assert [node.op_type for node in model.graph] == ["Neg", "RNN"]
