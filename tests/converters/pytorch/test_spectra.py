"""Fourier transforms as products: their middle bin, and lengths that stay transforms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from convertkit.artifact import Artifact
from convertkit.converters.pytorch.operators.spectra import exact_transforms
from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.specs import interface
from convertkit.onnx.twin import Twin


def _model(text: str) -> ir.Model:
    head = '<ir_version: 9, opset_import: ["": 20]>'
    return ir.from_proto(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(head + text), data_prop=True))


def _short_time(size: int) -> str:
    window = ", ".join(f"{value:.9f}" for value in np.hanning(size))
    return (
        f"g (float[2,4096,1] x) => (float[2,f,b,2] y) <int64 step = {{{size // 2}}}, float[{size}] w = {{{window}}}>"
        "{ y = STFT <onesided = 1> (x, step, w) }"
    )


def _axis(size: int) -> str:
    return f"g (float[2,{size},1] x) => (float[2,b,2] y) <int64 axis = {{1}}>{{ y = DFT <onesided = 1> (x, , axis) }}"


@pytest.mark.parametrize("size", [16, 30, 64, 512])
@pytest.mark.parametrize("written", [_short_time, _axis])
def test_the_middle_bin_is_a_real_number(written, size: int) -> None:
    model = _model(written(size))
    before = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString())
    assert exact_transforms(model)
    assert not {"STFT", "DFT"} & {node.op_type for node in model.graph}
    after = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString())
    (given,) = after.get_inputs()
    x = np.random.default_rng(2).standard_normal(given.shape).astype(np.float32)
    ((was,), (found,)) = (session.run(None, {"x": x}) for session in (before, after))
    np.testing.assert_allclose(found, was, atol=2e-5 * np.abs(was).max())
    assert not found[..., [0, -1], 1].any()
    assert not np.signbit(found[..., -1, 1]).any()


@pytest.mark.parametrize("written", [_short_time, _axis])
def test_long_powers_of_two_stay_transforms(written) -> None:
    assert not exact_transforms(_model(written(1024)))


_FRAME, _STEP = 400, 160


def _windowed() -> tuple[ir.Model, np.ndarray]:
    """A transform of frames of 25 ms, and its window."""
    window = np.hanning(_FRAME + 1)[:-1].astype(np.float32)
    text = (
        "g (float[1,4010,1] x) => (float[1,f,b,2] y) "
        f"<int64 step = {{{_STEP}}}, float[{_FRAME}] w = {{{', '.join(map(repr, window.tolist()))}}}>"
        "{ y = STFT <onesided = 1> (x, step, w) }"
    )
    return _model(text), window


def _spectra(samples: np.ndarray, window: np.ndarray) -> np.ndarray:
    """All frames in float64, complex."""
    frames = np.lib.stride_tricks.sliding_window_view(samples.astype(np.float64), len(window))[::_STEP]
    return np.asarray(np.fft.rfft(frames * window))


def _transformed(model: ir.Model, samples: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString())
    (found,) = session.run(None, {"x": samples[None, :, None]})
    return np.asarray(found[0, ..., 0] + 1j * found[0, ..., 1])


@pytest.mark.parametrize("level", [1.0, 0.3, 3.0, -0.7])
def test_a_signal_that_does_not_change_leaves_the_other_bins_empty(level: float) -> None:
    model, window = _windowed()
    samples = np.full(4010, level, np.float32)
    assert exact_transforms(model)
    error = np.abs(_transformed(model, samples) - _spectra(samples, window))[:, 2:]
    assert error.max() < 1e-7 * abs(level)  # summed up one by one: 1e-5 of it


def test_frames_of_blocks_are_those_of_samples() -> None:
    model, window = _windowed()
    exact_transforms(model)
    rng = np.random.default_rng(3)
    samples = (rng.standard_normal(4010) * (np.arange(4010) // 700 % 2) + 0.2).astype(np.float32)
    samples[1600:2400] = 0
    found, expected = _transformed(model, samples), _spectra(samples, window)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * np.abs(expected).max())
    assert not found[10:12].any()  # frames of silence alone


def test_the_twin_rounds_as_sums_of_samples_do(tmp_path: Path) -> None:
    model, window = _windowed()
    exact_transforms(model)
    ir.save(canonicalize(model), tmp_path / "m.onnx")
    samples = np.full(4010, 0.3, np.float32)
    specs = interface(ir.load(tmp_path / "m.onnx"))
    with Twin(Artifact(tmp_path / "m.onnx", "onnx", *specs, sha256="0" * 64)) as twin:
        truth = twin.run({"x": samples[None, :, None]})
    (value,), (spread,) = truth.values.values(), truth.spread.values()
    expected = _spectra(samples, window)
    np.testing.assert_allclose(value[0, ..., 0], expected.real, rtol=0, atol=1e-6)
    assert spread[0, :, 2:].max() > 1e-6
