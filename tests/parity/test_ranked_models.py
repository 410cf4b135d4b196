"""A detector's head through the whole export: tied candidates may change places, faults among them are caught."""

import functools

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import convertkit
from convertkit.errors import ParityError
from convertkit.onnx.registry import Key
from convertkit.targets.tflite.handlers import TFLITE
from tests.onnx_models import model

RNG = np.random.default_rng(8)
PLACES = 16


@pytest.fixture
def head(tmp_path):
    """Scores and boxes of 16 places, eight of which score all but the same as their neighbour; the best ten."""
    scores = np.repeat(RNG.standard_normal((12, PLACES // 2)), 2, 1)
    scores[:, ::2] *= 1 + 2e-7
    stored = [
        numpy_helper.from_array(value, name)
        for name, value in {
            "s": scores.astype(np.float32),
            "b": RNG.standard_normal((12, 4 * PLACES)).astype(np.float32),
            "k": np.array([10]),
            "grid": np.array([0, PLACES, 4]),
            "last": np.array([-1]),
            "wide": np.array([1, 1, 4]),
        }.items()
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "s"], ["scores"]),
        helper.make_node("MatMul", ["x", "b"], ["flat"]),
        helper.make_node("Reshape", ["flat", "grid"], ["all"]),
        helper.make_node("TopK", ["scores", "k"], ["best", "places"]),
        helper.make_node("Unsqueeze", ["places", "last"], ["column"]),
        helper.make_node("Expand", ["column", "wide"], ["index"]),
        helper.make_node("GatherElements", ["all", "index"], ["boxes"], axis=1),
    ]
    outputs = {"boxes": ["N", 10, 4], "best": ["N", 10], "places": ["N", 10]}
    proto = model(nodes, {"x": ["N", 12]}, outputs, stored, opset=17)
    proto.graph.output[2].type.tensor_type.elem_type = onnx.TensorProto.INT64
    path = tmp_path / "head.onnx"
    onnx.save(proto, path)
    return path


def exported(path):
    return convertkit.export(path, "tflite", output=path.parent / "out", calib={"x": FEEDS})


FEEDS = RNG.standard_normal((8, 12)).astype(np.float32)


def faulty(monkeypatch, op, since, change):
    """``change`` gets the builder, the operator's operands and what its own handler makes of operands."""
    original = TFLITE._handlers[Key(op, since)]

    @functools.wraps(original)
    def handler(b, *inputs, **attributes):
        return change(b, inputs, lambda *others: original(b, *others, **attributes))

    monkeypatch.setitem(TFLITE._handlers, Key(op, since), handler)


def rounded_otherwise(b, inputs, own):
    shift = np.where(np.arange(PLACES) % 2, 4e-7, -4e-7)
    return own(b.mul(inputs[0], b.constant((1 + shift).astype(np.float32))), inputs[1])


def test_ties_that_round_otherwise_pass_and_are_told(head, monkeypatch):
    faulty(monkeypatch, "TopK", 11, rounded_otherwise)
    report = exported(head).report
    step = report["steps"][-1]
    assert report["passed"]
    assert any("their scores tie" in text for text in step["parity"]["versus_previous"]["warnings"])


def worst_first(b, inputs, own):
    values, places = own(b.neg(inputs[0]), inputs[1])
    return b.neg(values), places


def from_the_end(b, inputs, own):
    values, places = own(*inputs)
    return values, b.sub(b.constant(np.array(PLACES - 1, np.int64)), places)


def boxes_of_others(b, inputs, own):
    return own(b.reverse(inputs[0], [1]), inputs[1])


@pytest.mark.parametrize(
    ("op", "since", "change"),
    [("TopK", 11, worst_first), ("TopK", 11, from_the_end), ("GatherElements", 13, boxes_of_others)],
    ids=["worst first", "indices off", "boxes of others"],
)
def test_faults_are_caught(head, monkeypatch, op, since, change):
    faulty(monkeypatch, op, since, change)
    with pytest.raises(ParityError, match="after tflite"):
        exported(head)
