"""Keras' files resize pictures by TensorFlow's weights: those of its own kernels, through layers and files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

import convertkit
from tests.command_line import here
from tests.installed import needs

for package in ("keras", "jax", "tensorflow"):
    needs(package)

SIZES = [(10, 7), (12, 17), (5, 5), (3, 9), (1, 4), (37, 11), (8, 3), (224, 100), (7, 100)]
_WEIGHTS = f"""
import numpy as np, tensorflow as tf
from convertkit.converters.keras.pictures import area_weights, cubic_weights
for before, after in {SIZES}:
    unit = np.eye(before, dtype=np.float32).reshape(1, before, 1, before)
    cubic = tf.raw_ops.ResizeBicubic(images=unit, size=[after, 1], half_pixel_centers=True)
    area = tf.raw_ops.ResizeArea(images=unit, size=[after, 1])
    pairs = (cubic, cubic_weights(before, after)), (area, area_weights(before, after))
    print([float(np.abs(np.reshape(theirs, (after, before)) - ours).max()) for theirs, ours in pairs])
"""
_MAKE = """
import sys, keras, numpy as np
x = keras.Input((10, 12, 3), name="x")
y = [
    keras.layers.Resizing(7, 17, interpolation="bicubic")(x),
    keras.layers.Resizing(5, 7, interpolation="area")(x),
    keras.layers.UpSampling2D(2, interpolation="bicubic")(x),
    keras.layers.Resizing(6, 6, interpolation="bicubic", crop_to_aspect_ratio=True)(x),
    keras.layers.Resizing(5, 7, interpolation="bicubic", antialias=True)(x),
]
model = keras.Model(x, y)
model.save(sys.argv[1])
given = np.random.default_rng(3).normal(size=(2, 10, 12, 3)).astype(np.float32)
np.savez(sys.argv[2], given, *(np.asarray(each) for each in model(given)))
"""


def ran(code: str, *arguments: str) -> str:
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout


def test_weights_are_those_of_tensorflows_kernels() -> None:
    off = np.array([json.loads(line) for line in ran(_WEIGHTS).splitlines()])
    assert off.shape == (len(SIZES), 2)
    assert off.max() < 5e-7


@pytest.mark.parametrize("suffix", ["keras", "h5"])
def test_layers_give_what_they_give_on_tensorflow(suffix: str, tmp_path: Path) -> None:
    source, kept = tmp_path / f"pictures.{suffix}", tmp_path / "kept.npz"
    ran(_MAKE, str(source), str(kept))
    said = here("export", source, "--target", "onnxruntime", "--output", tmp_path / "out")
    assert said.code == 0, said.complaint
    given, *wanted = np.load(kept).values()
    found = ort.InferenceSession(str(tmp_path / "out" / "model.onnx")).run(None, {"x": given})
    for have, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(have, want, rtol=0, atol=4e-6)


_ANY_SIZE = """
import keras, sys
x = keras.Input((None, None, 3), name="x")
ways = [keras.layers.Resizing(7, 13, interpolation=way) for way in ("bicubic", "area")]
keras.Model(x, [way(x) for way in ways] + [keras.layers.UpSampling2D(2, interpolation="bicubic")(x)]).save(sys.argv[1])
"""


@pytest.mark.parametrize("target", ["onnxruntime", "tflite"])
def test_pictures_of_any_size(target: str, tmp_path: Path) -> None:
    """Verified against the layers at fixed sizes."""
    path = tmp_path / "any.keras"
    subprocess.run([sys.executable, "-c", _ANY_SIZE, str(path)], check=True, capture_output=True)
    made = convertkit.export(path, target=target, output=tmp_path / "out")
    assert made.artifact.inputs[0].shape == ("batch", "x_1", "x_2", 3)
