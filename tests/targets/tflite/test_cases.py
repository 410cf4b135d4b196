"""Real models: compiled and held against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from convertkit.onnx.canonical import canonicalize
from convertkit.targets.tflite.compile import compile_model
from convertkit.targets.tflite.passes import Options
from tests.targets.tflite.compiled import Case, numbers


def case_of(path: Path, shapes: dict[str, tuple[int, ...]], fixed: dict[str, int] | None = None) -> Case:
    model = ir.from_proto(onnx.load(path))
    for value in model.graph.inputs:
        if value.name in shapes:
            value.shape = ir.Shape(shapes[value.name])
    reference = ir.to_proto(canonicalize(model))
    return Case(reference, compile_model(ir.from_proto(reference), Options(), fixed))


@pytest.mark.case
@pytest.mark.parametrize("name", ["model_1", "model_2"])
def test_denoiser_with_its_state_fed_back(cases, name):
    case = case_of(cases / "dtln" / f"{name}.onnx", {})
    specs = case.compiled.inputs
    feeds = [{spec.name: numbers(*spec.shape, seed=seed) * 0.1 for spec in specs} for seed in range(10)]
    case.agree(*feeds, tolerance=1e-5)


@pytest.mark.case
@pytest.mark.parametrize("name", ["mnist", "cnn_mnist_pytorch"])
def test_digits(cases, name):
    case = case_of(cases / "mnist" / f"{name}.onnx", {})
    assert "TRANSPOSE" not in case.operators
    import gzip

    raw = gzip.decompress((cases / "mnist" / "t10k-images-idx3-ubyte.gz").read_bytes())
    images = np.frombuffer(raw, np.uint8, offset=16).reshape(-1, 1, 1, 28, 28)[:50].astype(np.float32)
    (spec,) = case.compiled.inputs
    case.agree(*({spec.name: image} for image in images), tolerance=1e-5)


@pytest.mark.case
def test_voice_activity_over_ten_calls(cases):
    path = cases / "silero-vad" / "silero_vad.onnx"
    case = case_of(path, {"input": (1, 576), "state": (2, 1, 128), "sr": ()}, {"sr": 16000})
    rate = np.array(16000, np.int64)
    feeds = [
        {"input": numbers(1, 576, seed=s) * 0.1, "state": numbers(2, 1, 128, seed=50 + s), "sr": rate}
        for s in range(10)
    ]
    for expected, result in case.both(feeds):
        for name, want in expected.items():
            assert np.abs(result[name] - want).max() <= 1e-5
