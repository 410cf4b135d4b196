"""Outputs have the types that Keras gives them, in models of 64-bit integers as well."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.command_line import here
from tests.installed import needs

needs("keras")

_MAKE = """
import keras, sys
from keras import ops
ids = keras.Input((7,), dtype="int64", name="ids")
x = keras.layers.Embedding(20, 8)(ids)
outputs = [ops.argmax(x, -1), ops.argsort(x, -1), ops.sum(ids, 1), ids * 2.5, x]
model = keras.Model(ids, outputs)
model.save(sys.argv[1])
"""


def test_places_and_floats_have_32_bits(tmp_path: Path) -> None:
    path = tmp_path / "tokens.keras"
    subprocess.run([sys.executable, "-c", _MAKE, str(path)], check=True, capture_output=True)
    said = here("export", path, "--target", "onnxruntime", "--output", tmp_path / "out")
    assert said.code == 0, said.complaint
    outputs = json.loads((tmp_path / "out" / "manifest.json").read_text())["artifact"]["outputs"]
    assert [each["dtype"] for each in outputs] == ["int32", "int32", "int64", "float32", "float32"]
