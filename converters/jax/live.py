"""Functions and modules of JAX that live in the caller's process, as files that the converter reads.

JAX itself is the caller's: nothing here imports it, and an object is JAX's only where the caller has.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from convertkit.errors import SourceError, UsageError

_OTHERS = frozenset({"torch", "tensorflow", "keras", "tf_keras"})
_TRACING = (TypeError, ValueError, AttributeError, IndexError, KeyError, AssertionError, NotImplementedError)
_EXAMPLE = (
    "a JAX function is exported with an example of its arguments: an array, a tuple of them, or a dict of keyword "
    "arguments; jax.ShapeDtypeStruct stands for an array, also one with sizes of jax.export.symbolic_shape"
)


def saved_live(model: object, example: object, folder: Path) -> Path | None:
    """A file in ``folder`` made of ``model``; None where that is not JAX's.

    ``model`` is what ``jax.export`` made or lowered, a function (jitted or not), a Flax NNX module, or a pair of a
    function and its parameters, or of a Linen module and its variables.  ``example``: see :data:`_EXAMPLE`.
    Raises ``UsageError`` where the example is missing, ``SourceError`` where JAX cannot export the function.
    """
    jax = sys.modules.get("jax")
    if jax is None:
        return None
    from jax import export

    path = folder / f"{_name(model)}.jax"
    if isinstance(model, export.Exported):
        path.write_bytes(bytes(model.serialize()))
        return path
    if isinstance(model, jax.stages.Lowered):
        text = model.as_text()
        named = re.match(r"module @(?:jit_)?(\w+)", text)
        path = folder / f"{named[1] if named else 'function'}.mlir"
        path.write_text(text)
        return path
    function = _function(model)
    if function is None:
        return None
    if example is None:
        raise UsageError(_EXAMPLE)
    arguments, keywords = _arguments(example)
    jitted = function if isinstance(function, jax.stages.Wrapped) else jax.jit(function)
    try:
        exported = export.export(jitted, platforms=("cpu",))(*arguments, **keywords)
        path.write_bytes(bytes(exported.serialize()))
    except _TRACING as error:
        raise SourceError(f"JAX cannot export {_name(model)}: {_first_line(error)}") from error
    return path


def _function(model: Any) -> Callable[..., Any] | None:
    """A function of the inputs alone, parameters bound; None for what is not JAX's."""
    from convertkit.converters.jax.callables import is_nnx, nnx_function, with_parameters

    if is_nnx(model):
        return nnx_function(model)
    if isinstance(model, tuple):
        return with_parameters(*model) if len(model) == 2 and callable(getattr(model[0], "apply", model[0])) else None
    roots = {kind.__module__.partition(".")[0] for kind in type(model).__mro__}
    return model if callable(model) and not isinstance(model, type) and not roots & _OTHERS else None


def _arguments(example: object) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    if isinstance(example, Mapping):
        return (), example
    return (tuple(example) if isinstance(example, tuple | list) else (example,)), {}


def _name(model: Any) -> str:
    """What a file may be called after: the function's own name, or its module's class."""
    inner = model[0] if isinstance(model, tuple) else model
    found = getattr(inner, "fun_name", None) or getattr(inner, "__name__", None) or type(inner).__name__
    return re.sub(r"\W+", "_", str(found)).strip("_") or "function"


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__
