"""Spectra of sounds of any length, whose complex numbers ONNX does not have."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import convertkit
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
    "longer": ((None,), lambda x: tf.abs(signal.rfft(x, [31]))),
    "cepstrum": ((None, None), lambda x: signal.mfccs_from_log_mel_spectrograms(
        tf.math.log(tf.abs(signal.stft(x, 30, 12, 32))[..., 1:13] + 1e-2))),
    "line": ((None,), lambda x: tf.math.log(tf.abs(signal.stft(x, 400, 160, 512)) + 1e-2)),
}
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


@pytest.mark.parametrize("name", ["magnitude", "parts", "filtered", "whole", "longer", "cepstrum", "line"])
@pytest.mark.parametrize("target", ["onnxruntime", "tflite"])
def test_lengths_and_batches_stay_dynamic(saved: Path, tmp_path: Path, target: str, name: str):
    made = convertkit.export(saved / name, target, output=tmp_path / "out")
    assert isinstance(made.artifact.inputs[0].shape[0], str)
    known = np.load(saved / f"{name}.npz")
    np.testing.assert_allclose(made.run({"x": known["x"]})["y"], known["y"], atol=2e-5 * np.abs(known["y"]).max())
