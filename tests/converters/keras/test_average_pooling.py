"""Keras divides a sum over windows by how many elements they have; integers keep one operator of it."""

import subprocess
import sys

import numpy as np
import pytest

from tests.installed import needs

needs("keras")
pytest.importorskip("ai_edge_litert")

SAVE = """
import os
os.environ["KERAS_BACKEND"] = "jax"
import keras
keras.utils.set_random_seed(0)
x = inputs = keras.Input((9, 9, 4), name="x")
for pool in (keras.layers.AveragePooling2D(2, padding="same"), keras.layers.AveragePooling2D(5)):
    x = pool(keras.layers.Conv2D(8, 3, padding="same", activation="relu")(x))
keras.Model(inputs, keras.layers.Dense(5)(keras.layers.Flatten()(x))).save("pools.keras")
"""
EXPORT = "-m convertkit export pools.keras -t tflite --int8 --full-integer --calib calib.npz -o out"


def test_it_is_quantized_throughout(tmp_path):
    subprocess.run([sys.executable, "-c", SAVE], cwd=tmp_path, check=True, capture_output=True)
    images = np.random.default_rng(0).standard_normal((24, 9, 9, 4)).astype(np.float32)
    np.savez(tmp_path / "calib.npz", x=images)
    done = subprocess.run([sys.executable, *EXPORT.split()], cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "model.tflite").exists()
