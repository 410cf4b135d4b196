"""``pkg.mod:callable`` as a program: resolved, bound to its parameters and exported with JAX.

What the callable may be, in this order:

* a function whose parameters are called like the ``--input`` names;
* a function without required parameters that makes the model: it returns a function of the inputs,
  a pair of function and parameters (``f(parameters, *inputs)``), a pair of Flax Linen module and
  variables, or an NNX module.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import ml_dtypes
import numpy as np
from jax import export

from convertkit.errors import SourceError, UsageError
from convertkit.references import imported

Wanted = tuple[str, Sequence[int | str] | None, str | None]
"""Name, shape and dtype of one ``--input``."""


def exported_callable(source: str, inputs: Sequence[Wanted]) -> tuple[Any, tuple[str, ...]]:
    """The exported program and its inputs' names."""
    if not inputs:
        raise UsageError(f"{source} needs its inputs: --input NAME:SHAPE[:DTYPE], once per input")
    function = model_function(resolved(source), [name for name, _, _ in inputs], source)
    scope = export.SymbolicScope()
    specs = [_struct(each, scope) for each in inputs]
    try:
        program = export.export(jax.jit(function))(*specs)
    except (TypeError, ValueError, AttributeError, IndexError, KeyError, AssertionError) as error:
        raise SourceError(f"{source} cannot be exported by JAX: {_first_line(error)}") from error
    kept = tuple(inputs[place][0] for place in program.module_kept_var_idx)
    return program, kept


def resolved(source: str) -> Any:
    """The object that ``pkg.mod:name`` stands for."""
    module, _, name = source.partition(":")
    try:
        found: Any = imported(module)
        for part in name.split("."):
            found = getattr(found, part)
    except ModuleNotFoundError as error:
        raise SourceError(f"{source}: {error}") from error
    except AttributeError as error:
        raise SourceError(f"{source}: module {module} has no {name}") from error
    return found


def model_function(found: Any, names: Sequence[str], source: str) -> Callable[..., Any]:
    """A function of the inputs alone, parameters bound."""
    if is_nnx(found):
        return nnx_function(found)
    if not callable(found):
        raise SourceError(f"{source} is a {type(found).__name__}, expected a function or a Flax module")
    parameters = [p for p in inspect.signature(found).parameters.values() if p.default is p.empty]
    required = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if required:
        return _by_name(found, names) if {p.name for p in required} <= set(names) else found
    made = found()
    if isinstance(made, tuple) and len(made) == 2:
        bound = with_parameters(*made)
        if bound is not None:
            return bound
    if is_nnx(made):
        return nnx_function(made)
    if callable(made):
        function: Callable[..., Any] = made
        return function
    raise SourceError(
        f"{source} returned a {type(made).__name__}, expected a function, a pair with parameters or a Flax module"
    )


def _by_name(function: Callable[..., Any], names: Sequence[str]) -> Callable[..., Any]:
    return lambda *values: function(**dict(zip(names, values, strict=True)))


def with_parameters(model: Any, state: Any) -> Callable[..., Any] | None:
    """A Linen module with its variables, or a function with its parameters, as a function of the inputs alone."""
    if hasattr(model, "apply") and hasattr(model, "init"):
        return lambda *values, **named: model.apply(state, *values, **named)
    return (lambda *values, **named: model(state, *values, **named)) if callable(model) else None


def is_nnx(found: Any) -> bool:
    """Whether an object is a module of Flax NNX; imports nothing."""
    return any(
        f"{kind.__module__}.{kind.__name__}".startswith("flax.nnx.") and kind.__name__ == "Module"
        for kind in type(found).__mro__
    )


def nnx_function(model: Any) -> Callable[..., Any]:
    """A module of Flax NNX as a function of its inputs."""
    from flax import nnx

    graph, state = nnx.split(model)

    def applied(*values: Any, **named: Any) -> Any:
        # Merged anew in each trace, from fresh variables: a trace may change only those that it made itself, and
        # the random streams of an NNX.RNN's carry count.
        return nnx.merge(graph, jax.tree.map(lambda value: value, state))(*values, **named)

    return applied


def _struct(wanted: Wanted, scope: Any) -> Any:
    name, shape, dtype = wanted
    if shape is None:
        raise UsageError(f"--input {name}: its shape is needed, as in --input {name}:1,224,224,3")
    kind = np.dtype(getattr(ml_dtypes, dtype or "float32", dtype or "float32"))
    if all(isinstance(size, int) for size in shape):
        return jax.ShapeDtypeStruct(tuple(shape), kind)
    return jax.ShapeDtypeStruct(export.symbolic_shape(",".join(map(str, shape)), scope=scope), kind)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__
