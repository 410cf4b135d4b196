"""Keras models of the caller's process become files that a converter reads."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.installed import needs

needs("keras")

PREAMBLE = """
import sys
from pathlib import Path
import keras, numpy as np
from convertkit.converters.keras import converter
from convertkit.errors import UsageError

class Doubled(keras.layers.Layer):
    def call(self, x):
        return x * 2

class Net(keras.Model):
    def __init__(self):
        super().__init__(name="net")
        self.dense = keras.layers.Dense(2)

    def call(self, x):
        return self.dense(x)

def functional(layer):
    inputs = keras.Input((4,), name="x")
    return keras.Model(inputs, keras.layers.Dense(3, name="y")(layer(inputs)), name="small-net")

def saved(model, example=None):
    keras.utils.set_random_seed(0)
    path = converter.save_live(model, example, Path("."))
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    np.savez("truth.npz", x=x, y=np.asarray(model(x)))
    print(path)
"""
RELU = "saved(functional(keras.layers.ReLU()))"
OWN = "saved(functional(Doubled()))"
LAMBDA = "saved(functional(keras.layers.Lambda(lambda x: x * 2)))"
SUBCLASSED = "saved(Net(), np.zeros((2, 4), 'f'))"
FILES = [
    ("jax", RELU, "small_net.keras"),
    ("tensorflow", RELU, "small_net.keras"),
    ("jax", OWN, "small_net.jax"),
    ("jax", LAMBDA, "small_net.jax"),
    ("tensorflow", OWN, "small_net"),
    ("tensorflow", SUBCLASSED, "net"),
]

CHECK = """
truth = np.load("truth.npz")
from convertkit import export
result = export("{file}", "onnxruntime", output="out")
assert [list(spec.shape[1:]) for spec in result.artifact.inputs] == [[4]]
got, = result.run(dict([(result.artifact.inputs[0].name, truth["x"])])).values()
np.testing.assert_allclose(got, truth["y"], rtol=1e-5, atol=1e-6)
print("same")
"""


def run(folder: Path, backend: str, code: str) -> str:
    """What a program of the user's prints last, run in ``folder``."""
    env = {**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": os.pathsep.join(sys.path), "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, "-c", PREAMBLE + code], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert not done.returncode, done.stderr[-2000:]
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize(("backend", "code", "file"), FILES)
def test_what_is_saved_computes_the_same(backend, code, file, tmp_path):
    pytest.importorskip(backend)
    assert run(tmp_path, backend, code) == file
    assert run(tmp_path, backend, CHECK.format(file=file)) == "same"


def test_a_model_without_inputs_asks_for_an_example(tmp_path):
    asked = "try: saved(Net())\nexcept UsageError as error: print(error)"
    assert "give an example of its inputs" in run(tmp_path, "jax", asked)
    wrong = "try: saved(Net(), np.zeros(()))\nexcept UsageError as error: print(error)"
    assert "net does not take the example" in run(tmp_path, "jax", wrong)


def test_what_is_no_keras_model_is_left_to_others(tmp_path):
    assert run(tmp_path, "jax", "print(converter.save_live(len, None, Path('.')))") == "None"
