"""A Keras model as StableHLO with named dynamic dimensions, through ``jax.export``.

Imports JAX, therefore only ever imported in a worker process.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import keras
from jax import export

from convertkit.converters.keras.compat import operation_of
from convertkit.converters.keras.free_sizes import FreeSizes, Input
from convertkit.errors import Unsupported

_PLACES = frozenset({"Argmax", "Argmin", "Argsort", "CountNonzero", "Digitize", "SearchSorted"})
"""Operations whose results Keras has as int32, whatever they look at."""
_FACTORS = (1, 2, 4, 8, 16, 32)
"""Sizes are multiples of one of these; nets of images halve them up to five times."""
_LEAST = (1, 8, 64)
"""Sizes from which on a model is traced, where a layer compares one with a number: a crop has to leave something."""
_COMPARED = re.compile(r"comparison .* is inconclusive")
_STYLE = re.compile(r"\x1b\[\d+m")
_TRACE_ERRORS = (
    ValueError, TypeError, NotImplementedError, RuntimeError, KeyError, AttributeError, NameError,
    jax.core.InconclusiveDimensionOperation,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Program:
    """A portable StableHLO module; dynamic dimensions by (index of the input or output, axis)."""

    module: bytes
    dims: Mapping[tuple[int, int], str]
    output_dims: Mapping[tuple[int, int], str]
    sizes: FreeSizes


def compiled(model: Any, packed: Callable[[list[Any]], Any]) -> Callable[[list[Any]], list[Any]]:
    """One inference call from flat inputs to flat outputs, compiled once for each set of shapes."""

    def forward(trainable: list[Any], fixed: list[Any], flat: list[Any]) -> list[Any]:
        results, _ = model.stateless_call(trainable, fixed, packed(flat), training=False)
        return _as_declared(model, keras.tree.flatten(results))

    weights = [
        [variable.value for variable in each] for each in (model.trainable_variables, model.non_trainable_variables)
    ]
    compiled_once = jax.jit(forward)
    return lambda flat: list(compiled_once(*weights, flat))


def _as_declared(model: Any, results: list[Any]) -> list[Any]:
    """Floats and places of 32 bits where Keras gives these: JAX with 64-bit types has others of them."""
    tensors = list(getattr(model, "outputs", None) or ())
    if len(tensors) != len(results):
        return results
    return [_narrowed(value, tensor) for value, tensor in zip(results, tensors, strict=True)]


def _narrowed(value: Any, tensor: Any) -> Any:
    operation = operation_of(tensor)
    if str(value.dtype) == "float64" and str(tensor.dtype) == "float32":
        return value.astype("float32")
    return value.astype("int32") if str(value.dtype) == "int64" and operation in _PLACES else value


def exported(model: Any, packed: Callable[[list[Any]], Any], inputs: Sequence[Input]) -> Program:
    """Trace one inference call of ``model``; raises ``Unsupported`` where JAX cannot."""
    trainable = [variable.value for variable in model.trainable_variables]
    fixed = [variable.value for variable in model.non_trainable_variables]

    def forward(*flat: Any) -> tuple[Any, ...]:
        results, _ = model.stateless_call(trainable, fixed, packed(list(flat)), training=False)
        return tuple(_as_declared(model, keras.tree.flatten(results)))

    sizes, traced = _traced(forward, inputs)
    names = {str(symbol): name for name, symbol in sizes.symbols().items()}
    dims = {(i, axis): dim for i, (_, shape, _) in enumerate(sizes.inputs) for axis, dim in enumerate(shape)
            if isinstance(dim, str)}  # fmt: skip
    output_dims = {(i, axis): names[str(dim)] for i, aval in enumerate(traced.out_avals)
                   for axis, dim in enumerate(aval.shape) if str(dim) in names}  # fmt: skip
    return Program(traced.mlir_module_serialized, dims, output_dims, sizes)


def _traced(forward: Callable[..., Any], inputs: Sequence[Input]) -> tuple[FreeSizes, Any]:
    """``forward`` as JAX traces it, and what its dynamic sizes have to be for that.

    Where it takes no size, it may take multiples: a net that halves its images and joins what it doubles again.
    """
    errors: list[Exception] = []
    is_free = any(isinstance(dim, str) for _, shape, _ in inputs for dim in shape[1:])
    for factor in _FACTORS if is_free else _FACTORS[:1]:
        for sizes in _tried(tuple(inputs), factor, errors) if is_free else [FreeSizes(tuple(inputs))]:
            try:
                return sizes, _trace(forward, sizes)
            except _TRACE_ERRORS as error:
                errors.append(error)
    free = [f"--input {name}:{','.join('1' if isinstance(d, str) else str(d) for d in shape)}"
            for name, shape, _ in inputs if any(isinstance(d, str) for d in shape)]  # fmt: skip
    raise Unsupported(f"JAX cannot trace the model: {sentence(errors[0])}", ways_out=tuple(free)) from errors[0]


def _tried(inputs: tuple[Input, ...], factor: int, errors: Sequence[Exception]) -> Iterator[FreeSizes]:
    """Sizes to trace with, one after the other; each follows from what ``errors`` says of the one before at its end.

    Sizes that have to be the same get one name.  Where a layer compares one with a number, larger ones may decide it (a
    crop has to leave something), or sizes up to that number (a table has so many positions).
    """
    sizes, small = FreeSizes(inputs, factor), None
    for least in _LEAST:
        yield (sizes := replace(sizes, least=least))
        while (same := sizes.of_same(errors[-1])) is not None:
            yield (sizes := same)
        if least == 1:
            small = sizes.bounded(errors[-1])
        if not _COMPARED.search(str(errors[-1])):
            break  # no larger sizes would decide it
    while small is not None:
        yield (sizes := small)
        small = sizes.of_same(errors[-1]) or sizes.bounded(errors[-1])


def _trace(forward: Callable[..., Any], sizes: FreeSizes) -> Any:
    symbols = sizes.symbols()
    specs = [
        jax.ShapeDtypeStruct([symbols.get(str(dim), dim) for dim in shape], kind) for _, shape, kind in sizes.inputs
    ]
    return export.export(jax.jit(forward, keep_unused=True), platforms=["cpu"])(*specs)


def sentence(error: Exception) -> str:
    """What went wrong, in one line; Keras puts it behind a preamble that names the call, or the layer."""
    _, _, inner = _STYLE.sub("", str(error)).rpartition("Exception encountered:")
    lines = [line.strip() for line in inner.splitlines() if line.strip()]
    told = " ".join(lines[:2]) if lines and lines[0].startswith("Exception encountered") else "".join(lines[:1])
    return told[:300] or type(error).__name__
