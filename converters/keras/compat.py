"""What we use of Keras that its documentation does not promise, each with a test of what we rely on.

Imports Keras, therefore only ever imported in a worker process.  Where a new version of Keras moves or changes one of
these, ``tests/converters/keras/test_compat.py`` names it.
"""

from __future__ import annotations

import importlib
import inspect

from keras.src.utils import python_utils

_OPERATIONS = tuple(f"keras.src.ops.{name}" for name in ("numpy", "nn", "math", "core", "linalg", "image"))


def module_of_operation(name: str) -> str:
    """The module of an operator's class, empty where there is none: ``.h5`` files leave it out, ``.keras`` store it."""
    for module in _OPERATIONS:
        if inspect.isclass(getattr(importlib.import_module(module), name, None)):
            return module
    return ""


def give_tensorflow_to_stored_code() -> None:
    """Let code that a file holds find ``tf``: it runs with the globals of the module of Keras that unpacks it."""
    vars(python_utils)["tf"] = importlib.import_module("tensorflow")
