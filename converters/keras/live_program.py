"""A live Keras model on its JAX backend as an artifact of ``jax.export``; imports both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import keras
from jax import export

from convertkit.errors import SourceError, UsageError

_TRACING = (ValueError, TypeError, NotImplementedError, RuntimeError, KeyError, AttributeError)


def saved_program(model: Any, path: Path) -> Path:
    """One inference call, its dynamic dimensions (``batch`` and those without a size) kept where JAX can trace them.

    Raises ``SourceError`` where it can trace the call neither so nor with a batch of 1.
    """
    if not model.inputs:
        raise UsageError(
            f"{model.name} does not say what its inputs are; make it a functional model, or export a function"
        )
    error: Exception | None = None
    for free in (True, False):
        try:
            exported = export.export(jax.jit(_inference(model)), platforms=("cpu",))(*_specs(model, free=free))
            path.write_bytes(bytes(exported.serialize()))
        except _TRACING as found:
            error = error or found
            continue
        return path
    raise SourceError(f"JAX cannot export {model.name}: {str(error).splitlines()[0][:300]}") from error


def _inference(model: Any) -> Any:
    weights = [[each.value for each in group] for group in (model.trainable_variables, model.non_trainable_variables)]

    def predict(*flat: Any) -> Any:
        packed = keras.tree.pack_sequence_as(model.input, list(flat))
        results, _ = model.stateless_call(*weights, packed, training=False)
        return results

    return predict


def _specs(model: Any, *, free: bool) -> list[Any]:
    scope = export.SymbolicScope()
    specs = []
    for place, tensor in enumerate(model.inputs):
        names = [
            str(size) if size is not None else ("batch" if axis == 0 else f"d{place}_{axis}") if free else "1"
            for axis, size in enumerate(tensor.shape)
        ]
        shape = export.symbolic_shape(", ".join(names), scope=scope)
        specs.append(jax.ShapeDtypeStruct(shape, tensor.dtype))
    return specs
