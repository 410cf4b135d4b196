"""Faults where real ones happen, inside the compiler: each is caught with exit 3 and nothing is delivered."""

import dataclasses
import functools

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import convertkit
from convertkit.errors import ParityError
from convertkit.onnx.registry import Key
from convertkit.targets.tflite import lowering
from convertkit.targets.tflite.handlers import TFLITE
from tests.onnx_models import model

RNG = np.random.default_rng(11)


@pytest.fixture
def network(tmp_path):
    """Conv, a tanh beside it, both added, mean, dense: every fault below changes its numbers."""
    shapes = {"w": (4, 3, 3, 3), "b": (4,), "d": (4, 6)}
    stored = [
        numpy_helper.from_array(RNG.standard_normal(shape).astype(np.float32), name) for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Tanh", ["c"], ["t"]),
        helper.make_node("Add", ["c", "t"], ["s"]),
        helper.make_node("ReduceMean", ["s"], ["m"], axes=[2, 3], keepdims=0),
        helper.make_node("MatMul", ["m", "d"], ["y"]),
    ]
    proto = model(nodes, {"x": ["N", 3, 8, 6]}, {"y": ["N", 6]}, stored, opset=17)
    onnx.save(proto, tmp_path / "net.onnx")
    calibration = RNG.standard_normal((24, 3, 8, 6)).astype(np.float32)
    return tmp_path / "net.onnx", {"x": calibration}


def export(network, **flags):
    path, calibration = network
    output = path.parent / "out"
    return convertkit.export(path, "tflite", output=output, calib=calibration, **flags)


def caught(network, **flags):
    with pytest.raises(ParityError) as failure:
        export(network, **flags)
    assert failure.value.exit_code == 3
    message = str(failure.value)
    assert all(part in message for part in ("after tflite", '"y"', "max_abs", "allowed"))
    folder = network[0].parent
    assert sorted(entry.name for entry in folder.iterdir()) == ["net.onnx", "out.failed"]
    assert sorted(entry.name for entry in (folder / "out.failed").iterdir()) == ["report.html", "report.json"]


@pytest.mark.parametrize("flags", [{}, {"int8": True, "full_integer": True}], ids=["float32", "int8"])
def test_without_a_fault_it_passes(network, flags):
    assert export(network, **flags).report["passed"]


def replaced(monkeypatch, op, since, handler):
    monkeypatch.setitem(TFLITE._handlers, Key(op, since), handler)


def test_a_handler_that_computes_something_else(network, monkeypatch):
    replaced(monkeypatch, "Add", 14, lambda b, x, y: b.sub(x, y))
    caught(network)


def test_a_handler_that_forgets_its_input(network, monkeypatch):
    replaced(monkeypatch, "Tanh", 13, lambda b, x: b.logistic(x))
    caught(network)


def test_channels_in_another_order(network, monkeypatch):
    original = TFLITE._handlers[Key("Conv", 1, "convertkit.nhwc")]

    @functools.wraps(original)
    def swapped(b, x, w, bias=None, **attributes):
        turned = dataclasses.replace(w, name=f"{w.name}/turned", constant=np.ascontiguousarray(w.constant[:, ::-1]))
        return original(b, x, turned, bias, **attributes)

    monkeypatch.setitem(TFLITE._handlers, Key("Conv", 1, "convertkit.nhwc"), swapped)
    caught(network)


def test_a_weight_scale_that_is_off(network, monkeypatch):
    original = lowering.quantization_of

    def off(value):
        params = original(value)
        if params is None or params.axis is None:
            return params
        return dataclasses.replace(params, scale=tuple(1.5 * scale for scale in params.scale))

    monkeypatch.setattr(lowering, "quantization_of", off)
    caught(network, int8=True, full_integer=True)  # so small a model would stay float


def test_one_channel_whose_zero_point_is_off_by_one(network, monkeypatch):
    """As if the weights of one channel stood for numbers one step further: 1/127 of its largest weight."""
    original = TFLITE._handlers[Key("Conv", 1, "convertkit.nhwc")]

    @functools.wraps(original)
    def shifted(b, x, w, bias=None, **attributes):
        moved = w.constant.astype(np.int16)
        moved[:1] = np.minimum(moved[:1] + 1, 127)
        other = dataclasses.replace(w, name=f"{w.name}/moved", constant=moved.astype(w.constant.dtype))
        return original(b, x, other, bias, **attributes)

    monkeypatch.setitem(TFLITE._handlers, Key("Conv", 1, "convertkit.nhwc"), shifted)
    caught(network, int8=True, full_integer=True)


@pytest.mark.parametrize("by", [-1, 1])
def test_a_zero_point_of_activations_that_is_off_by_one(network, monkeypatch, by):
    original, moved = lowering.quantization_of, []

    def off(value):
        params = original(value)
        if params is None or params.axis is not None or (moved and moved[0] != value.name):
            return params
        moved[:] = [value.name]
        return dataclasses.replace(params, zero_point=tuple(point + by for point in params.zero_point))

    monkeypatch.setattr(lowering, "quantization_of", off)
    caught(network, int8=True, full_integer=True)
