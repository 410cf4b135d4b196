"""Inputs that have sizes in common, and layers that take sizes up to a number: a Keras file names neither."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import here
from tests.installed import needs

needs("keras")

_MASKED = """
import keras, sys
from keras import layers
words = keras.Input((None,), dtype="int32", name="words")
kept = keras.Input((None,), dtype="int32", name="kept")
x = layers.Embedding(11, 8)(words)
x = layers.MultiHeadAttention(2, 4)(x, x, attention_mask=keras.ops.expand_dims(kept, 1) > 0)
keras.Model([words, kept], layers.Dense(3)(x)).save(sys.argv[1])
"""
_TWO_TEXTS = """
import keras, sys
from keras import layers
long, short, mask = (keras.Input((None, size), name=name) for name, size in (("a", 6), ("b", 6), ("mask", 1)))
keras.Model([long, short, mask], layers.MultiHeadAttention(2, 4)(layers.Dense(8)(long), short * mask)).save(sys.argv[1])
"""
_CROSSED = """
import keras, sys
from keras import layers
one, other, mask = (keras.Input((None, *size), name=name) for name, size in (("a", (6,)), ("b", (6,)), ("mask", ())))
seen = keras.ops.expand_dims(mask, 1) > 0
y = layers.MultiHeadAttention(2, 4)(layers.Dense(8)(one), layers.Dense(8)(other), attention_mask=seen)
keras.Model([one, other, mask], y).save(sys.argv[1])
"""
_PLACED = """
import keras, sys
from keras import layers

@keras.saving.register_keras_serializable("{package}")
class Placed(layers.Layer):
    def build(self, shape):
        self.places = self.add_weight(shape=(12, shape[-1]), initializer="random_normal")

    def call(self, x):
        if not keras.ops.shape(x)[1] <= 12:
            raise ValueError("there are 12 places")
        return x + self.places[: keras.ops.shape(x)[1]]

    def compute_output_shape(self, shape):
        return shape

if __name__ == "__main__":
    x, z = keras.Input((None, 5), name="x"), keras.Input((None, 6), name="z")
    y = Placed()(layers.Conv1D(6, 3, 2, padding="same")(x))
    keras.Model([x, z], layers.MultiHeadAttention(2, 4)(Placed()(z), y)).save(sys.argv[1])
"""


def _saved(code: str, path: Path) -> Path:
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, capture_output=True)
    return path


def _interface(folder: Path) -> list[list[int | str]]:
    artifact = json.loads((folder / "manifest.json").read_text())["artifact"]
    return [each["shape"] for side in ("inputs", "outputs") for each in artifact[side]]


@pytest.mark.parametrize("target", ["onnxruntime", "tflite"])
def test_tokens_are_as_many_as_their_mask(target: str, tmp_path: Path) -> None:
    path = _saved(_MASKED, tmp_path / "masked.keras")
    said = here("export", path, "--target", target, "--output", tmp_path / "out")
    assert said.code == 0, said.complaint
    assert _interface(tmp_path / "out") == [["batch", "words_1"], ["batch", "words_1"], ["batch", "words_1", 3]]
    notes = json.loads((tmp_path / "out" / "report.json").read_text())["notes"]
    assert any("dynamic size kept_1 is words_1" in str(note) for note in notes)


@pytest.mark.parametrize(("code", "mask"), [(_TWO_TEXTS, [1]), (_CROSSED, [])], ids=["product", "attention"])
def test_other_sizes_stay_apart(code: str, mask: list[int | str], tmp_path: Path) -> None:
    """A decoder's text is not as long as the encoder's, whose mask is."""
    path = _saved(code, tmp_path / "texts.keras")
    said = here("export", path, "--target", "onnxruntime", "--output", tmp_path / "out")
    assert said.code == 0, said.complaint
    inputs = [["batch", "a_1", 6], ["batch", "b_1", 6], ["batch", "b_1", *mask]]
    assert _interface(tmp_path / "out") == [*inputs, ["batch", "a_1", 8]]


@pytest.mark.parametrize("target", ["onnxruntime", "tflite"])
def test_sizes_up_to_a_number(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual sizes are too large; what is compared is half of one of them, and the two may differ."""
    (tmp_path / "placed_layers.py").write_text(_PLACED.format(package="placed"))
    path = tmp_path / "placed.keras"
    subprocess.run([sys.executable, str(tmp_path / "placed_layers.py"), str(path)], check=True, capture_output=True)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    given = ("--model", "placed_layers:Placed", "--target", target, "--output", tmp_path / "out")
    said = here("export", path, *given)
    assert said.code == 0, said.complaint
    assert _interface(tmp_path / "out")[:2] == [["batch", "x_1", 5], ["batch", "z_1", 6]]
    notes = json.loads((tmp_path / "out" / "report.json").read_text())["notes"]
    for size in ("x_1", "z_1"):
        assert any("<= 12" in str(note) and size in str(note) for note in notes)


_REFUSED = """
import os
os.environ["KERAS_BACKEND"] = "jax"
import keras
from convertkit.converters.keras import service
from convertkit.errors import Unsupported

tried = []

def exported(*given):
    tried.append(given)
    raise Unsupported("JAX cannot trace it")

service.exported = exported
words = keras.Input((None, 3), name="words")
opened, shapes = service.KerasService(), {"words": ["batch", "words_1", 3]}
opened._model = keras.Model(words, keras.layers.Dense(2)(words))
assert opened.sizes({"shapes": shapes}, {}).value == {"shapes": shapes, "known": {}}
try:
    opened.convert({"shapes": shapes, "to": "never.onnx", "made_by": ""}, {})
except Unsupported as error:
    print(error, len(tried))
"""


def test_what_cannot_be_traced_is_tried_once() -> None:
    """When the file is opened, and not again by its conversion, which says why."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", _REFUSED], check=True, capture_output=True, text=True, env=environment)
    assert ran.stdout.splitlines()[-1] == "JAX cannot trace it 1"
