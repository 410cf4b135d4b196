"""What a quantization tells it became."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.quantization.models import images, model_of, small_cnn


def mlp(*sizes: int) -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    nodes, constants, last = [], {}, "x"
    for place, (width, made) in enumerate(itertools.pairwise(sizes)):
        constants[f"w{place}"] = rng.normal(0, width**-0.5, (width, made)).astype(np.float32)
        nodes += [
            helper.make_node("MatMul", [last, f"w{place}"], [f"m{place}"], f"dense{place}"),
            helper.make_node("Tanh", [f"m{place}"], [f"t{place}"], f"tanh{place}"),
        ]
        last = f"t{place}"
    nodes[-1].output[0] = "y"
    return model_of(nodes, constants, {"x": ["N", sizes[0]]}, {"y": ["N", sizes[-1]]})


def test_integers_for_everything_are_told_so(quantized) -> None:
    found = quantized(small_cnn(), images(40), without_costs=True, full_integer=True).stage.diagnosis
    assert (found["requested"], found["effective"], found["integer_macs_share"]) == ("int8", "int8", 1.0)
    held_out = found["held_out"]
    assert (held_out["samples"], held_out["seen"]) == (10, False)
    assert held_out["snr_db"] > 15
    assert held_out["snr_db_p5"] <= held_out["snr_db_median"]
    assert 0 <= held_out["agreement"] <= 1


def test_few_samples_are_seen_by_calibration(quantized) -> None:
    held_out = quantized(small_cnn(), images(6), without_costs=True).stage.diagnosis["held_out"]
    assert (held_out["samples"], held_out["seen"]) == (6, True)


@pytest.mark.parametrize(
    ("precision", "target", "effective"),
    [
        ("int8", "tflite", "weights-only"),
        ("int8", "onnxruntime", "weights-only"),
        ("w8", "tflite", "w8"),
        ("w4", "onnxruntime", "w4"),
        ("fp16", "tflite", "fp16"),
        ("fp16", "onnxruntime", "fp16"),
    ],
)
def test_what_is_not_computed_in_integers_is_told_so(quantized, precision: str, target: str, effective: str) -> None:
    """Integers gain nothing in a small MLP, whose weights they make smaller all the same."""
    data = np.random.default_rng(1).normal(0, 1, (40, 96)).astype(np.float32)
    found = quantized(mlp(96, 80, 60), data, precision, target).stage.diagnosis
    assert (found["requested"], found["effective"]) == (precision, effective)
    assert found["held_out"]["samples"] == 10
    assert found["held_out"]["snr_db"] > 10


def test_weights_that_are_too_small_stay_float(quantized) -> None:
    data = np.random.default_rng(1).normal(0, 1, (40, 6)).astype(np.float32)
    found = quantized(mlp(6, 5, 4), data).stage.diagnosis
    assert (found["effective"], found["integer_macs_share"]) == ("float32", 0.0)


def test_without_data_nothing_is_held_out(quantized) -> None:
    assert quantized(mlp(96, 80, 60), None, "w8").stage.diagnosis["held_out"] is None


def test_a_table_of_integer_rows_is_told_of(quantized) -> None:
    """Where the rows of an embedding are all that is stored as integers."""
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], "relu"),
        helper.make_node("Cast", ["r"], ["places"], "places", to=onnx.TensorProto.INT64),
        helper.make_node("Gather", ["table", "places"], ["rows"], "look_up"),
        helper.make_node("Tanh", ["rows"], ["y"], "tanh"),
    ]
    table = rng.normal(0, 1, (64, 2048)).astype(np.float32)
    proto = model_of(nodes, {"table": table}, {"x": ["N", 3]}, {"y": ["N", 3, 2048]})
    data = rng.integers(0, 64, (40, 3)).astype(np.float32)
    found = quantized(proto, data, "w8", "onnxruntime").stage.diagnosis
    assert found["effective"] == "w8"
