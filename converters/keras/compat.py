"""What we use of Keras that its documentation does not promise, each with a test of what we rely on.

Imports Keras, therefore only ever imported in a worker process.  Where a new version of Keras moves or changes one of
these, ``tests/converters/keras/test_compat.py`` names it.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

from keras.src.utils import python_utils

_OPERATIONS = tuple(f"keras.src.ops.{name}" for name in ("numpy", "nn", "math", "core", "linalg", "image"))


def module_of_operation(name: str) -> str:
    """The module of an operator's class, empty where there is none: ``.h5`` files leave it out, ``.keras`` store it."""
    for module in _OPERATIONS:
        if inspect.isclass(getattr(importlib.import_module(module), name, None)):
            return module
    return ""


def operation_of(tensor: Any) -> str:
    """The name of the operation that makes a symbolic tensor; empty where it does not say."""
    history = getattr(tensor, "_keras_history", None)
    return "" if history is None else type(history.operation).__name__


def give_tensorflow_to_stored_code() -> None:
    """Let code that a file holds find ``tf``: it runs with the globals of the module of Keras that unpacks it."""
    vars(python_utils)["tf"] = importlib.import_module("tensorflow")


def resize_pictures_by(resize: Callable[..., Any]) -> None:
    """Let Keras on JAX resize by ``resize``, which stands for ``jax.image.resize``, and by area, as on TensorFlow."""
    pictures: Any = importlib.import_module("keras.src.backend.jax.image")
    pictures.RESIZE_INTERPOLATIONS = (*dict.fromkeys((*pictures.RESIZE_INTERPOLATIONS, "area")),)
    if isinstance(pictures.jax, ModuleType):
        image = SimpleNamespace(**{**vars(pictures.jax.image), "resize": resize})
        pictures.jax = SimpleNamespace(**{**vars(pictures.jax), "image": image})
