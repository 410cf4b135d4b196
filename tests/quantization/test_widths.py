"""Weights of 4 bits where they keep enough, of 8 and 32 where it takes those."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import convertkit
from convertkit.data.evaluation import auc
from convertkit.errors import ParityError
from tests.quantization.models import autoencoder, gain_invariant_classifier, loud_and_quiet, machine_sounds, model_of

SOUNDS = machine_sounds(128, 1)[0]
FRESH, STRANGE = machine_sounds(600, 2)


def area(reconstructed: np.ndarray) -> float:
    """Of the ROC curve that reconstruction errors tell anomalies by, in percent."""
    errors = np.square(reconstructed - FRESH).mean(-1)
    return auc(STRANGE.astype(np.int64)[:, None], errors[:, None])


def test_an_autoencoder_keeps_what_tells_anomalies(quantized) -> None:
    """SNR says nothing of it: 4 bits keep 25 dB of the reconstruction and lose a quarter of the area."""
    loses = quantized(autoencoder(), SOUNDS, "w4", "onnxruntime", accept_loss=True)
    before, after = map(area, loses.outputs(FRESH))
    assert before > 90
    assert after < before - 10
    result = quantized(autoencoder(), SOUNDS, "w4", "onnxruntime")
    assert area(result.outputs(FRESH)[1]) > before - 0.5
    found = result.stage.diagnosis
    assert [(rung["rung"], rung["good"]) for rung in found["rungs"]] == [("int4", False), ("some int8", True)]
    first = found["rungs"][0]
    assert first["snr_db"] > 20
    assert first["reconstruction_db"] < 20 <= found["held_out"]["reconstruction_db"]
    assert "1 layer has int8 weights" in found["notes"][0]


@pytest.mark.parametrize("precision", ["int8", "w8", "w4"])
def test_an_autoencoder_keeps_its_area_in_every_precision(quantized, precision: str) -> None:
    before, after = map(
        area, quantized(autoencoder(), SOUNDS, precision, without_costs=precision == "int8").outputs(FRESH)
    )
    assert after > before - 1


def test_four_bits_that_keep_enough_stay(quantized) -> None:
    found = quantized(gain_invariant_classifier(), loud_and_quiet(65, seed=3)[0], "w4").stage.diagnosis
    assert (found["effective"], [rung["rung"] for rung in found["rungs"]]) == ("w4", ["int4"])
    assert found["notes"] == []
    assert found["held_out"]["samples"] == 16


def test_what_weights_are_tuned_on_does_not_judge_them(quantized) -> None:
    """Were it the same samples, this would promise several dB more than fresh ones show."""
    data = machine_sounds(128, 1)[0]
    result = quantized(autoencoder(), data, "w4", accept_loss=True)
    told = result.stage.diagnosis["held_out"]["snr_db"]
    assert told < result.snr_db(machine_sounds(300, 3)[0]) + 1


def difference(spread: float) -> onnx.ModelProto:
    """What is left of two products whose weights differ by ``spread`` of themselves."""
    rng = np.random.default_rng(0)
    one = rng.normal(0, 1, (32, 64)).astype(np.float32)
    other = (one + rng.normal(0, spread, one.shape)).astype(np.float32)
    nodes = [
        helper.make_node("Gemm", ["x", "a"], ["p"], "p", transB=1),
        helper.make_node("Gemm", ["x", "b"], ["q"], "q", transB=1),
        helper.make_node("Sub", ["p", "q"], ["y"], "d"),
    ]
    return model_of(nodes, {"a": one, "b": other}, {"x": [1, 64]}, {"y": [1, 32]})


def test_without_data_nothing_below_10_db_is_delivered(tmp_path: Path) -> None:
    """Such files were delivered at 7.8 dB, and at 3.0 dB with 4 bits."""
    onnx.save(difference(0.02), tmp_path / "near.onnx")
    with pytest.raises(ParityError, match=r"at least 10 dB .*--max-drop(.|\n)*--calib"):
        convertkit.export(tmp_path / "near.onnx", "tflite", w8=True, output=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    onnx.save(difference(0.1), tmp_path / "far.onnx")
    assert convertkit.export(tmp_path / "far.onnx", "tflite", w8=True, output=tmp_path / "out").passed


def test_stored_weights_that_ruin_a_model_are_refused(quantized) -> None:
    """Columns that cancel to a thousandth of themselves."""
    model = autoencoder()
    rng = np.random.default_rng(0)
    for each in model.graph.initializer:
        if each.name == "w2":
            array = rng.normal(0, 1e-3, (6, 96))
            array[:3] += 1.0
            array[3:] -= 1.0
            each.raw_data = array.astype(np.float32).tobytes()
        if each.name in ("b1", "b2"):
            each.raw_data = bytes(len(each.raw_data))
        if each.name == "w1":
            column = rng.normal(0, 1, (96, 1))
            each.raw_data = np.tile(column, (1, 6)).astype(np.float32).tobytes()
    with pytest.raises(ParityError, match="--w4 --accept-loss keeps"):
        quantized(model, SOUNDS, "w4", accept_loss=True)
    assert quantized(model, SOUNDS, "w4").stage.diagnosis["rungs"][-1]["good"]
