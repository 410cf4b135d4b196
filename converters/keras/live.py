"""Keras models that live in the caller's process, as files that a converter reads.

Keras itself is the caller's: nothing here imports it, and an object is Keras's only where the caller has.
"""

from __future__ import annotations

import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

from convertkit.errors import SourceError, Unsupported, UsageError

_SAVING = (ValueError, TypeError, AttributeError, NotImplementedError, RuntimeError, KeyError)


def saved_live(model: Any, example: object, folder: Path) -> Path | None:
    """A file in ``folder`` made of ``model`` by the Keras that it belongs to; None where it is not a Keras model.

    Layers of Keras's own go into a ``.keras`` file (``.h5`` for Keras 2).  What has code of the caller's, which a file
    names but does not hold, is exported by its backend: a SavedModel of TensorFlow, StableHLO of JAX.  ``example``
    builds a model that has not seen an input yet.  Raises ``UsageError`` where it has to and there is none,
    ``Unsupported`` where the backend exports nothing.
    """
    kind = _kind(model)
    if kind is None:
        return None
    _built(model, example)
    name = re.sub(r"\W+", "_", str(model.name)).strip("_") or "model"
    if not _has_own_code(model, kind):
        path = folder / f"{name}{'.keras' if kind == 'keras' else '.h5'}"
        return _written(model.save, path)
    backend = "tensorflow" if kind == "tf_keras" else sys.modules["keras"].backend.backend()
    if backend == "jax":
        from convertkit.converters.keras.live_program import saved_program

        return saved_program(model, folder / f"{name}.jax")
    if backend == "tensorflow":
        export = partial(model.export, verbose=False) if kind == "keras" else model.save
        return _written(export, folder / name)
    raise Unsupported(
        f"{name} has layers of your own, and nothing that Keras's {backend} backend exports is read here",
        ways_out=("set KERAS_BACKEND=jax or tensorflow before Keras is imported",
                  "save the model as .keras and name its classes: --model pkg.mod:Class"),
    )  # fmt: skip


def _kind(model: object) -> str | None:
    """The Keras whose model this is: ``keras`` 3, or ``tf_keras`` for Keras 2."""
    for name in ("keras", "tf_keras"):
        base = getattr(sys.modules.get(name), "Model", None)
        if base is not None and isinstance(model, base):
            return name
    return None


def _built(model: Any, example: object) -> None:
    if getattr(model, "inputs", None):
        return
    if example is None and not model.built:
        raise UsageError(
            f"{model.name} has not seen an input yet; give an example of its inputs, or call build() first"
        )
    if example is not None:
        arguments, keywords = ((), example) if isinstance(example, dict) else ((example,), {})
        if isinstance(example, tuple):
            arguments = example
        try:
            model(*arguments, **keywords)
        except _SAVING as error:
            raise UsageError(f"{model.name} does not take the example: {_first_line(error)}") from error


def _has_own_code(model: Any, kind: str) -> bool:
    """Whether any part is not a class of Keras's own, or holds code as a Lambda layer does."""
    parts = [model, *model._flatten_layers(include_self=False)]
    roots = {type(part).__module__.partition(".")[0] for part in parts}
    return bool(roots - {kind}) or any(type(part).__name__ == "Lambda" for part in parts)


def _written(write: Any, path: Path) -> Path:
    try:
        write(path if path.suffix else str(path))
    except _SAVING as error:
        raise SourceError(f"Keras cannot save {path.stem}: {_first_line(error)}") from error
    return path


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__
