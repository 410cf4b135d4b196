"""int8 ``.tflite`` → ONNX QDQ → ``.tflite``: the same integers come out."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

import convertkit

pytestmark = pytest.mark.case


def run(path: Path, samples: np.ndarray) -> np.ndarray:
    """Outputs of LiteRT for each sample; state starts afresh."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path), num_threads=1)
    (into,), (out,) = interpreter.get_input_details(), interpreter.get_output_details()
    made = []
    for sample in samples:
        interpreter.resize_tensor_input(into["index"], sample[None].shape)
        interpreter.allocate_tensors()
        interpreter.reset_all_variables()
        interpreter.set_tensor(into["index"], sample[None])
        interpreter.invoke()
        made.append(interpreter.get_tensor(out["index"])[0].copy())
    return np.stack(made)


def again(path: Path, samples: np.ndarray, tmp_path: Path, name: str) -> Path:
    """The file after the round trip; ``samples`` prove each step."""
    np.savez(tmp_path / "calib.npz", **{name: samples[:16]})
    made = convertkit.export(path, target="tflite", calib=str(tmp_path / "calib.npz"), output=tmp_path / "out")
    return made.path / "model.tflite"


def test_keyword_spotting_is_bit_identical(cases: Path, tmp_path: Path):
    path = cases / "mlperf-kws" / "reference_int8.tflite"
    data = np.load(cases / "mlperf-kws" / "kws01.npz")
    samples = data["mfcc_int8"].reshape(-1, 49, 10, 1)[:300]
    after = run(again(path, samples, tmp_path, "input_1"), samples)
    np.testing.assert_array_equal(after, run(path, samples))


@pytest.mark.parametrize(
    ("file", "name", "shape"),
    [("hello_world_int8", "dense_input", (1,)), ("micro_speech_quantized", "Reshape_1", (1960,))],
)
def test_microcontroller_models_are_bit_identical(cases: Path, tmp_path: Path, file: str, name: str, shape: tuple):
    path = cases / "tflm" / f"{file}.tflite"
    samples = np.random.default_rng(0).integers(-128, 128, (100, *shape)).astype(np.int8)
    after = run(again(path, samples, tmp_path, name), samples)
    np.testing.assert_array_equal(after, run(path, samples))


def test_the_residual_network_is_bit_identical(cases: Path, tmp_path: Path):
    path = cases / "mlperf-ic" / "pretrainedResnet_quant.tflite"
    samples = np.random.default_rng(0).integers(-128, 128, (50, 32, 32, 3)).astype(np.int8)
    after = run(again(path, samples, tmp_path, "input_1_int8"), samples)
    np.testing.assert_array_equal(after, run(path, samples))


def test_the_fused_lstm_keeps_its_decisions(cases: Path, tmp_path: Path):
    """The cell's 16-bit state is rounded elsewhere, so at most one decision in a thousand may change."""
    path = cases / "mnist" / "trained_lstm_int8.tflite"
    packed = (cases / "mnist" / "t10k-images-idx3-ubyte.gz").read_bytes()
    pixels = np.frombuffer(gzip.decompress(packed), np.uint8, offset=16).reshape(-1, 28, 28)[:500]
    samples = (pixels.astype(np.int16) - 128).astype(np.int8)
    after, before = run(again(path, samples, tmp_path, "fixed_input"), samples), run(path, samples)
    assert (after.argmax(-1) != before.argmax(-1)).sum() <= 2
