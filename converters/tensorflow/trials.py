"""The inputs on which a route from TensorFlow to ONNX is tried, with sizes for what is dynamic.

They differ from those of the verification, which does not choose.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from convertkit.artifact import Array, TensorSpec
from convertkit.errors import SourceError
from convertkit.parity.free_sizes import attempts, named_sizes
from convertkit.workers.process import Worker

_FEEDS = 2
_SEED = 20_011
_SMALL = 2
"""The first size of every dynamic dimension: no route costs less to try."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Feeds of the sizes ``sizes``, which holds those of each feed."""

    params: Mapping[str, Any]
    feeds: Mapping[str, Array]
    """Under ``<index>/<input>``."""
    sizes: Sequence[Mapping[str, int]]


def asked(worker: Worker, method: str, specs: Sequence[TensorSpec], more: Mapping[str, Any]) -> Any:
    """What the worker answers on the first sizes at which the model itself computes.

    ``SourceError`` with the sizes where the model fails on all of them: it may take others.
    """
    refused: list[tuple[SourceError, Trial]] = []
    for trial in _trials(specs):
        try:
            return worker.call(method, {**trial.params, **more}, dict(trial.feeds)).value
        except SourceError as error:
            refused.append((error, trial))
    first, trial = refused[0]
    if not trial.sizes[0]:
        raise first
    flags = " ".join(f"--static {name}=SIZE" for name in trial.sizes[0])
    told = "; ".join(", ".join(f"{name}={size}" for name, size in each.sizes[0].items()) for _, each in refused)
    raise SourceError(f"{first}\n  it was run with {told}\n  try   {flags}, with sizes that the model takes") from first


def _trials(specs: Sequence[TensorSpec]) -> Iterator[Trial]:
    """Small sizes first, then those with which the verification begins: windows may need more than two elements."""
    names = {dim for spec in specs for dim in spec.shape if isinstance(dim, str)}
    yield _trial(specs, [dict.fromkeys(sorted(names), _SMALL)] * _FEEDS)
    for attempt in range(attempts(specs)) if names else ():
        yield _trial(specs, [named_sizes(specs, attempt, turn) for turn in range(_FEEDS)])


def _trial(specs: Sequence[TensorSpec], sizes: Sequence[Mapping[str, int]]) -> Trial:
    rng = np.random.default_rng(_SEED)
    feeds = {f"{i}/{spec.name}": _random(spec, sizes[i], rng) for i in range(_FEEDS) for spec in specs}
    return Trial({"shapes": {spec.name: list(spec.shape) for spec in specs}, "feeds": _FEEDS}, feeds, sizes)


def _random(spec: TensorSpec, sizes: Mapping[str, int], rng: np.random.Generator) -> Array:
    """A small value for choosing a route."""
    shape = [size if isinstance(size, int) else sizes[size] for size in spec.shape]
    kind = np.dtype(spec.dtype)
    low, high = spec.value_range or (0.0, 1.0 if kind.kind == "f" else 2.0)
    if kind.kind == "f":
        return (low + (high - low) * rng.random(shape)).astype(kind)
    return rng.integers(int(low), max(int(high), int(low) + 1), shape).astype(kind)
