"""int8 ``.tflite`` → ONNX QDQ → ``.tflite``: the same integers come out."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

import convertkit
from convertkit.converters.tflite.importer import to_onnx
from convertkit.converters.tflite.model import read_model
from convertkit.converters.tflite.recurrent import METADATA
from convertkit.onnx.canonical import canonicalize
from convertkit.targets.tflite.compile import compile_model
from convertkit.targets.tflite.passes import Options

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


def lstm_samples(cases: Path, count: int) -> np.ndarray:
    packed = (cases / "mnist" / "t10k-images-idx3-ubyte.gz").read_bytes()
    pixels = np.frombuffer(gzip.decompress(packed), np.uint8, offset=16).reshape(-1, 28, 28)[:count]
    return (pixels.astype(np.int16) - 128).astype(np.int8)


def test_the_fused_lstm_is_bit_identical(cases: Path, tmp_path: Path):
    path, samples = cases / "mnist" / "trained_lstm_int8.tflite", lstm_samples(cases, 300)
    made = again(path, samples, tmp_path, "fixed_input")
    np.testing.assert_array_equal(run(made, samples), run(path, samples))
    assert "UNIDIRECTIONAL_SEQUENCE_LSTM" in operators(made)


def operators(path: Path) -> list[str]:
    return [op.builtin for op in read_model(path).subgraphs[0].operators]


@pytest.mark.parametrize("change", [0.0, 0.3])
def test_an_lstm_whose_weights_are_no_longer_its_integers_is_not_fused(cases: Path, tmp_path: Path, change: float):
    """A weight moved by a third of its step."""
    model = read_model(cases / "mnist" / "trained_lstm_int8.tflite")
    onnx = canonicalize(to_onnx(model, model.signatures[0]))
    scan = next(node for node in onnx.graph if METADATA in node.metadata_props)
    facts = json.loads(scan.metadata_props[METADATA])
    product = scan.inputs[2].producer()
    weights = product.inputs[1].const_value.numpy().copy()
    weights[3, 5] += change * facts["input_weights"][0]["scale"]
    product.inputs[1].const_value = ir.tensor(weights, name=product.inputs[1].name)
    compiled = compile_model(onnx, Options())
    fused = [op.code for op in compiled.program.subgraphs[0].operations].count("UNIDIRECTIONAL_SEQUENCE_LSTM")
    assert fused == (0 if change else 1)
