"""Trained models of others on silence, black, white, padding and real windows: what is delivered is what they compute.

Judged by the runtimes themselves, outside the pipeline: ONNX Runtime, LiteRT, PyTorch.
"""

from __future__ import annotations

import gzip
import wave
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

import convertkit
from convertkit import plugins

TARGETS = ("onnxruntime", "tflite")
ALLOWED = 5e-5
"""Of the largest output: a unit in the last place of a logit near 100 moves a softmax by 1e-5."""
Arrays = Mapping[str, np.ndarray]


def of_onnx(path: Path) -> Callable[[Arrays], list[np.ndarray]]:
    """The file's outputs, in ONNX Runtime."""
    import onnxruntime as ort

    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return lambda feed: session.run(None, dict(feed))


def of_tflite(path: Path) -> Callable[[Arrays], list[np.ndarray]]:
    """The file's outputs, in LiteRT."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path), experimental_default_delegate_latest_features=False)
    interpreter.allocate_tensors()
    details = interpreter.get_input_details()

    def run(feed: Arrays) -> list[np.ndarray]:
        interpreter.reset_all_variables()
        named = {detail["name"]: detail["index"] for detail in details}
        for name, value in feed.items():
            interpreter.set_tensor(named[name] if len(details) > 1 else details[0]["index"], value)
        interpreter.invoke()
        return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]

    return run


def edges(shape: tuple[int, ...], high: float, windows: list[np.ndarray]) -> Iterator[np.ndarray]:
    """Silence, constants, tiny values, the ends of the range, half of a window, and windows of real data."""
    first = windows[0].reshape(shape).astype(np.float32)
    half = first.copy().reshape(-1)
    half[: half.size // 2] = 0
    yield from (np.full(shape, value, np.float32) for value in (0.0, -0.0, 1e-7, 1e-3, high, -high, high / 3))
    yield from (first * np.float32(1e-6), half.reshape(shape), -np.abs(first))
    yield from (window.reshape(shape).astype(np.float32) for window in windows)


def speech(cases: Path, size: int) -> list[np.ndarray]:
    """The first, a middle and the last window of a recording."""
    with wave.open(str(cases / "silero-vad" / "test.wav")) as sound:
        samples = np.frombuffer(sound.readframes(sound.getnframes()), np.int16).astype(np.float32) / 32768
    middle = len(samples) // 2
    return [samples[middle : middle + size], samples[:size], samples[-size:]]


def digits(cases: Path) -> list[np.ndarray]:
    raw = gzip.decompress((cases / "mnist" / "t10k-images-idx3-ubyte.gz").read_bytes())
    return list(np.frombuffer(raw, np.uint8, offset=16).reshape(-1, 784)[:3].astype(np.float32))


def noise(size: int) -> list[np.ndarray]:
    return list(np.random.default_rng(3).standard_normal((3, size)).astype(np.float32))


STATE = (1, 2, 128, 2)
FILES = {
    "dtln/model_1.onnx": ({"input_2": (1, 1, 257), "input_3": STATE}, lambda c: [abs(w) for w in noise(257)], 2.0),
    "dtln/model_2.onnx": ({"input_4": (1, 1, 512), "input_5": STATE}, lambda c: speech(c, 512), 1.0),
    "dtln/model_1.tflite": ({"input_2": (1, 1, 257), "input_3": STATE}, lambda c: [abs(w) for w in noise(257)], 2.0),
    "dtln/model_2.tflite": ({"input_4": (1, 1, 512), "input_5": STATE}, lambda c: speech(c, 512), 1.0),
    "mnist/mnist.onnx": (None, digits, 255.0),
    "mnist/cnn_mnist_pytorch.onnx": (None, digits, 255.0),
    "mnist/trained_lstm.tflite": (None, lambda c: [d / 255 for d in digits(c)], 1.0),
    "mlperf-ic/pretrainedResnet.tflite": (None, lambda c: [abs(w) * 80 for w in noise(3072)], 255.0),
    "tflm/hello_world_float.tflite": (None, lambda c: noise(1), 6.28),
}


@pytest.mark.case
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", FILES)
def test_a_delivered_model_is_right_on_edges(cases: Path, tmp_path: Path, name: str, target: str) -> None:
    path = cases / name
    _, windows, high = FILES[name]
    result = convertkit.export(path, target, output=tmp_path / "out")
    given = (of_onnx if path.suffix == ".onnx" else of_tflite)(path)
    specs = result.artifact.inputs
    shapes = {spec.name: tuple(dim if isinstance(dim, int) else 1 for dim in spec.source_shape) for spec in specs}
    first, *others = shapes
    ran = 0
    with plugins.runner(result.artifact) as runner:
        for value in edges(shapes[first], high, windows(cases)):
            feed = {first: value, **{other: np.zeros(shapes[other], np.float32) for other in others}}
            for want, got in zip(given(feed), runner.run(feed).values(), strict=True):
                assert np.isfinite(want).all()
                np.testing.assert_allclose(got, want, rtol=0, atol=ALLOWED * max(1e-3, float(np.abs(want).max())))
                ran += 1
    assert ran >= 13


@pytest.mark.case
@pytest.mark.parametrize("target", TARGETS)
def test_voice_activity_is_right_on_edges(cases: Path, tmp_path: Path, target: str) -> None:
    import torch

    archive = cases / "silero-vad" / "silero_vad.jit"
    result = convertkit.export(archive, target, input=["x:1,512", "sr::int64"], output=tmp_path / "out")
    state = dict(np.load(result.artifact.initial_state))
    with plugins.runner(result.artifact) as runner, torch.no_grad():
        for value in edges((1, 512), 1.0, speech(cases, 512)):
            model = torch.jit.load(archive)  # each input begins a new recording
            want = model(torch.from_numpy(value), 16000).numpy()
            got = runner.run({"x": value, "sr": np.array(16000), **state})["output"]
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)
