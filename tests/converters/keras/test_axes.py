"""A norm, a turn and a product over axes, which a file keeps as lists."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.command_line import here
from tests.installed import needs

needs("keras")

_MAKE = """
import keras, sys
x = keras.Input((16,), batch_size=4, name="x")
inner = keras.Model(x, x / (keras.ops.norm(x, axis=-1, keepdims=True) + 1e-12))
turned = keras.ops.rot90(keras.ops.reshape(inner(x), (4, 2, 8, 1)), axes=(1, 2))
mixed = keras.ops.tensordot(turned, keras.ops.reshape(x, (4, 2, 8, 1)), axes=((1, 2), (2, 1)))
keras.Model(x, mixed).save(sys.argv[1])
"""


def test_a_norm_over_an_axis(tmp_path: Path) -> None:
    path = tmp_path / "norm.keras"
    subprocess.run([sys.executable, "-c", _MAKE, str(path)], check=True, capture_output=True)
    said = here("export", path, "--target", "onnxruntime", "--output", tmp_path / "out")
    assert said.code == 0, said.complaint
