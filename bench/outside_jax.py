"""JAX models as ``jax.export`` writes them, for ``bench/outside.py``; what they answer is computed in float64, too."""

from __future__ import annotations

import os
import pickle
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from outside import batches, floats
from outside_jax_models import Made, models

REFUSALS = (RuntimeError, ValueError, TypeError, LookupError, AttributeError, NotImplementedError)
FIXED = ("graph-net", "suppression", "forces", "equilibrium")
"""Models whose first axis is not a batch, or whose samples act on each other."""
TOKENS = ("gpt-tokens",)


def fed(name: str, shapes: list[tuple[int, ...]], dynamic: bool) -> dict[str, list[np.ndarray]]:
    """Inputs of every kind, or tokens."""
    if name in TOKENS:
        rng = np.random.default_rng(6)
        sizes = [*([1, 3] if dynamic else []), 2]
        return {f"tokens {n}": [rng.integers(0, 11, (n, *shapes[0][1:]), dtype=np.int32)] for n in sizes}
    return floats(shapes) | (batches(shapes, (1, 3)) if dynamic else {})


def exported(name: str, call: Callable[..., Any], weights: Any, shapes: list[tuple[int, ...]]) -> tuple[bytes, bool]:
    """The program's bytes, and whether its batch is dynamic."""
    kind = jnp.int32 if name in TOKENS else jnp.float32
    closed = jax.jit(lambda *x: call(jax.tree.map(jnp.asarray, weights), *x))
    if name not in FIXED:
        try:
            (size,) = export.symbolic_shape("N")
            specs = [jax.ShapeDtypeStruct((size, *shape[1:]), kind) for shape in shapes]
            return bytes(export.export(closed)(*specs).serialize()), True
        except REFUSALS as error:
            print(f"  fixed batch: {type(error).__name__}: {str(error)[:100]!r}")
    specs = [jax.ShapeDtypeStruct(shape, kind) for shape in shapes]
    return bytes(export.export(closed)(*specs).serialize()), False


def answers(call: Callable[..., Any], weights: Any, arrays: list[np.ndarray], kind: Any) -> list[np.ndarray]:
    """The leaves of what the function gives in float32 or float64."""

    def of_kind(leaf: Any) -> Any:
        return jnp.asarray(leaf, kind) if jnp.issubdtype(leaf.dtype, jnp.floating) else jnp.asarray(leaf)

    with jax.enable_x64(kind is jnp.float64):
        found = jax.jit(call)(jax.tree.map(of_kind, weights), *map(of_kind, arrays))
        return [np.asarray(each) for each in jax.tree.leaves(found)]


def one(folder: Path, name: str, made: Made) -> None:
    """NAME.jaxexport and NAME.pkl."""
    call, weights, shapes = made
    program, dynamic = exported(name, call, weights, shapes)
    rows = {
        kind: {
            "inputs": arrays,
            "outs": answers(call, weights, arrays, jnp.float32),
            "double": answers(call, weights, arrays, jnp.float64),
        }
        for kind, arrays in fed(name, shapes, dynamic).items()
    }
    (folder / f"{name}.jaxexport").write_bytes(program)
    (folder / f"{name}.pkl").write_bytes(pickle.dumps({"rows": rows, "flags": []}))
    print(f"{name}: {[each.shape for each in next(iter(rows.values()))['outs']]} {dynamic}", flush=True)


def make(folder: Path, names: list[str]) -> None:
    """Each model that is not there; what JAX does not export is said."""
    began = time.perf_counter()
    for name, maker in models().items():
        if (names and name not in names) or (folder / f"{name}.pkl").exists():
            continue
        if time.perf_counter() - began > 400:
            sys.exit(75)
        try:
            one(folder, name, maker())
        except REFUSALS as error:
            print(f"{name}: {type(error).__name__}: {str(error)[:300]!r}", flush=True)
