"""What is relied on of Keras beyond its documentation: where a new version fails here, ``compat.py`` has to change."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from tests.installed import needs

CODE = """
import sys, keras
from convertkit.converters.keras import compat
{0}
"""


def said(code: str, backend: str = "jax") -> list[str]:
    """What a fresh process prints that computes by this backend."""
    environment: dict[str, Any] = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(code)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_operators_are_found_where_files_of_keras_3_have_them() -> None:
    code = "print(*(compat.module_of_operation(name) for name in ('Add', 'Relu', 'Cond', 'Norm', 'Resize')))"
    modules = said(f"{code}; print(repr(compat.module_of_operation('Unheard')))")
    assert modules[-1] == "''"
    assert modules[:-1] == [f"keras.src.ops.{name}" for name in ("numpy", "nn", "core", "linalg", "image")]


def test_stored_code_finds_tensorflow() -> None:
    needs("tensorflow")  # not imported here: TensorFlow brings Keras along, on its own backend
    code = (
        "from keras.src.utils import python_utils\n"
        "packed = python_utils.func_dump(lambda x: tf.add(x, 1))\n"
        "function = python_utils.func_load(packed)\n"
        "compat.give_tensorflow_to_stored_code()\n"
        "print(int(function(2)))"
    )
    assert said(code, "tensorflow") == ["3"]


def test_an_output_tells_its_operation() -> None:
    code = "x = __import__('keras').Input((3,)); print(compat.operation_of(__import__('keras').ops.argmax(x, -1)))"
    assert said(f"{code}; print(repr(compat.operation_of(object())))") == ["Argmax", "''"]
