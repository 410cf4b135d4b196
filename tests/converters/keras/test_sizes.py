"""Nets of images of any size that halve them and join what they double again: sizes are multiples."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import convertkit
from tests.command_line import here
from tests.installed import needs

needs("keras")

_MAKE = """
import keras, sys
from keras import layers
x = keras.Input((None, None, 3), name="x")
a = layers.Conv2D(4, 3, padding="same")(x)
b = layers.Conv2D(6, 3, 2, padding="same", activation="relu")(a)
c = layers.Conv2D(6, 3, 2, padding="same", activation="relu")(b)
d = layers.Concatenate()([b, layers.UpSampling2D(2)(c)])
e = layers.Concatenate()([a, layers.Conv2DTranspose(4, 3, 2, padding="same")(d)])
keras.Model(x, layers.Conv2D(1, 1)(e)).save(sys.argv[1])
"""


@pytest.mark.parametrize("target", ["onnxruntime", "tflite"])
def test_a_net_that_joins_what_it_doubles(target: str, tmp_path: Path) -> None:
    path = tmp_path / "unet.keras"
    subprocess.run([sys.executable, "-c", _MAKE, str(path)], check=True, capture_output=True)
    said = here("export", path, "--target", target, "--output", tmp_path / "out")
    assert said.code == 0, said.complaint
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["artifact"]["inputs"][0]["shape"] == ["batch", "x_1", "x_2", 3]
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert any("multiples of 4" in str(note) for note in report["notes"])


_HALVES = """
import keras, sys
from keras import layers
x = inputs = keras.Input((None, None, 3), name="x")
x = layers.Conv2D(6, 3, 2, padding="same", activation="relu")(x)
x = layers.DepthwiseConv2D(3, 2, padding="same")(x)
x = layers.MaxPooling2D(3, 2, padding="same")(x)
x = layers.AveragePooling2D(2, padding="same")(x)
keras.Model(inputs, layers.Conv2D(4, 1)(x)).save(sys.argv[1])
"""


def test_a_net_that_halves_images_of_any_size(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    path = tmp_path / "halves.keras"
    subprocess.run([sys.executable, "-c", _HALVES, str(path)], check=True, capture_output=True)
    made = convertkit.export(path, target="tflite", output=tmp_path / "out")
    assert made.artifact.inputs[0].shape == ("batch", "x_1", "x_2", 3)
    assert not any("multiples" in note for note in made.notes)
    plain = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    inside = Interpreter(str(made.path / "model.tflite"), experimental_op_resolver_type=plain)._get_ops_details()
    wanted = {"CONV_2D", "DEPTHWISE_CONV_2D", "MAX_POOL_2D", "AVERAGE_POOL_2D"}
    assert {each["op_name"] for each in inside} == wanted


_CROPS = """
import keras, sys
from keras import layers
x = keras.Input((None, None, 3), name="x")
y = layers.Cropping2D(((1, 2), (0, 3)))(layers.ZeroPadding2D(1)(layers.Conv2D(4, 3)(x)))
keras.Model(x, layers.Conv2D(2, 1)(y)).save(sys.argv[1])
"""


@pytest.mark.parametrize("target", ["onnxruntime", "tflite"])
def test_crops_of_any_size(target: str, tmp_path: Path) -> None:
    """Keras asks whether a crop leaves anything, of which JAX knows only where sizes have a bound."""
    path = tmp_path / "crops.keras"
    subprocess.run([sys.executable, "-c", _CROPS, str(path)], check=True, capture_output=True)
    made = convertkit.export(path, target=target, output=tmp_path / "out")
    assert made.artifact.inputs[0].shape == ("batch", "x_1", "x_2", 3)
    assert "dynamic sizes other than the batch are 8 or more: a layer compares them" in made.notes


_COUNT = """
import os, sys
os.environ["KERAS_BACKEND"] = "jax"
from convertkit.converters.keras.lower import _traced
from convertkit.errors import Unsupported
for shape in (3, 4), ("n", 4), ("n", "m"):
    calls = []
    def forward(x):
        calls.append(x)
        raise ValueError("no")
    try:
        _traced(forward, [("x", shape, "float32")])
    except Unsupported:
        print(len(calls))
"""


def test_what_has_no_free_size_is_traced_once() -> None:
    """A refusal takes no longer than it has to."""
    done = subprocess.run([sys.executable, "-c", _COUNT], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["1", "1", "6"]
