"""Spectra of sounds of any length, whose complex numbers ONNX does not have."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

import convertkit
from convertkit.converters.tensorflow.steady_spectra import take_means_away
from tests.installed import needs

MODELS = """
import sys
import numpy as np
import tensorflow as tf
signal = tf.signal

def filtered(x):
    spectrum = signal.stft(x, 30, 12, 32)
    shift = tf.complex(tf.constant(0.5), tf.constant(-0.25)) * tf.math.conj(spectrum)
    return signal.irfft(tf.square(shift) + spectrum, [32])

ways = {
    "magnitude": ((None, None), lambda x: tf.abs(signal.stft(x, 30, 12, 32))),
    "parts": ((None, None), lambda x: tf.concat([tf.math.real(signal.stft(x, 30, 12)),
                                                 tf.math.angle(signal.stft(x + 2.0, 30, 12))], -1)),
    "filtered": ((None, None), filtered),
    "whole": ((None, 12), lambda x: tf.abs(signal.ifft(signal.fft(tf.cast(x, tf.complex64)) / tf.complex(2.0, 1.0)))),
    "back": ((None, None), lambda x: signal.inverse_stft(signal.stft(x, 30, 12, 32), 30, 12, 32)),
    "longer": ((None,), lambda x: tf.abs(signal.rfft(x, [31]))),
    "cepstrum": ((None, None), lambda x: signal.mfccs_from_log_mel_spectrograms(
        tf.math.log(tf.abs(signal.stft(x, 30, 12, 32))[..., 1:13] + 1e-2))),
    "quiet": ((None, 4000), lambda x: tf.math.log(tf.abs(signal.stft(x, 1024, 256)) + 1e-6)),
    "line": ((None,), lambda x: tf.math.log(tf.abs(signal.stft(x, 400, 160, 512)) + 1e-2)),
}
np.save(f"{sys.argv[1]}/window.npy", signal.hann_window(1024))
for name, (shape, way) in ways.items():
    model = tf.Module()
    model.call = tf.function(lambda x: {"y": way(x)}, input_signature=[tf.TensorSpec(shape, name="x")])
    tf.saved_model.save(model, f"{sys.argv[1]}/{name}", signatures=model.call)
    shape = [{0: 3, 1: 151}[axis] if size is None else size for axis, size in enumerate(shape)]
    x = np.random.default_rng(0).standard_normal(shape if len(shape) > 1 else 1999).astype("f")
    np.savez(f"{sys.argv[1]}/{name}.npz", x=x, y=model.call(x)["y"])
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    needs("tf2onnx")
    folder = tmp_path_factory.mktemp("saved")
    subprocess.run([sys.executable, "-c", MODELS, str(folder)], check=True, capture_output=True)
    return folder


@pytest.mark.parametrize("name", ["magnitude", "parts", "filtered", "whole", "longer", "cepstrum", "line", "back"])
@pytest.mark.parametrize("target", ["onnxruntime", "tflite"])
def test_lengths_and_batches_stay_dynamic(saved: Path, tmp_path: Path, target: str, name: str):
    made = convertkit.export(saved / name, target, output=tmp_path / "out")
    assert isinstance(made.artifact.inputs[0].shape[0], str)
    known = np.load(saved / f"{name}.npz")
    np.testing.assert_allclose(made.run({"x": known["x"]})["y"], known["y"], atol=2e-5 * np.abs(known["y"]).max())


@pytest.mark.parametrize("target", ["onnxruntime", "tflite"])
def test_what_does_not_change_leaves_the_other_bins_empty(saved: Path, tmp_path: Path, target: str):
    made = convertkit.export(saved / "quiet", target, output=tmp_path / "out")
    window = np.load(saved / "window.npy").astype(np.float64)
    for level in (1.0, -0.3):
        (found,) = made.run({"x": np.full((1, 4000), level, np.float32)})["y"]
        frame = np.log(np.abs(np.fft.rfft(np.float32(level) * window)) + 1e-6)
        np.testing.assert_allclose(found, np.broadcast_to(frame, found.shape), atol=1e-3)  # it was 3 off


def test_frames_lose_their_mean_and_their_window_once():
    rng = np.random.default_rng(0)
    turns = np.outer(np.arange(128), np.arange(65)) % 128 * (2 * np.pi / 128)
    stored = {
        "w": np.hanning(100).astype("f"),
        "cosines": np.cos(turns).astype("f"),
        "sines": -np.sin(turns).astype("f"),
        "other": rng.standard_normal((128, 65)).astype("f"),
    }
    model = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["": 18]>
        g (float[n,7,100] x) => (float[n,7,65] y, float[n,7,65] z, float[n,7,65] o)
        <int64[6] amounts = {0, 0, 0, 0, 0, 28}>
        { m = Mul(w, x) p = Pad(m, amounts) y = MatMul(p, cosines) z = MatMul(p, sines) o = MatMul(p, other) }"""
    )
    model.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in stored.items())
    changed = ir.from_proto(onnx.shape_inference.infer_shapes(model))
    take_means_away(changed)
    operators = Counter(node.op_type for node in changed.graph)
    assert operators == {"Mul": 3, "Pad": 1, "MatMul": 4, "Sub": 1, "Add": 2}
    x = (rng.standard_normal((2, 7, 100)) + 3).astype("f")
    got, expected = (
        onnxruntime.InferenceSession(each.SerializeToString()).run(None, {"x": x})
        for each in (ir.to_proto(changed), model)
    )
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-6 * np.abs(b).max())


def test_a_window_of_more_axes_than_the_frames_stays():
    turns = np.outer(np.arange(128), np.arange(65)) % 128 * (2 * np.pi / 128)
    stored = {"w": np.hanning(128).astype("f").reshape(1, 1, 128), "cosines": np.cos(turns).astype("f")}
    model = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["": 18]> g (float[n,128] x) => (float[1,n,65] y)
        { m = Mul(w, x) y = MatMul(m, cosines) }"""
    )
    model.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in stored.items())
    changed = ir.from_proto(onnx.shape_inference.infer_shapes(model))
    take_means_away(changed)
    x = np.ones((2, 128), "f")
    (got,) = onnxruntime.InferenceSession(ir.to_proto(changed).SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(got, (x * stored["w"]) @ stored["cosines"], atol=1e-4)
