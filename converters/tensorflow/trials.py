"""The inputs on which a route from TensorFlow to ONNX is tried, with sizes for what is dynamic.

They differ from those of the verification, which does not choose.
"""

from __future__ import annotations

import contextlib
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
"""The size of every dynamic dimension where the model takes none of the usual ones."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Arrays under ``<index>/<input>``, with the shapes of inputs and the number of feeds."""

    params: Mapping[str, Any]
    feeds: Mapping[str, Array]


def asked(worker: Worker, method: str, specs: Sequence[TensorSpec], more: Mapping[str, Any]) -> Any:
    """What the worker answers on the first sizes at which the model itself computes.

    Without feeds where the model fails on all that are made up: what is right for it is for the verification, which
    may have samples.
    """
    for trial in _trials(specs):
        with contextlib.suppress(SourceError):
            return worker.call(method, {**trial.params, **more}, dict(trial.feeds)).value
    return worker.call(method, {**_trial(specs, ()).params, **more}, {}).value


def _trials(specs: Sequence[TensorSpec]) -> Iterator[Trial]:
    """Those with which the verification begins, into which windows fit, and small ones for what takes no others."""
    names = {dim for spec in specs for dim in spec.shape if isinstance(dim, str)}
    for attempt in range(attempts(specs)) if names else ():
        yield _trial(specs, [named_sizes(specs, attempt, turn) for turn in range(_FEEDS)])
    yield _trial(specs, [dict.fromkeys(sorted(names), _SMALL)] * _FEEDS)


def _trial(specs: Sequence[TensorSpec], sizes: Sequence[Mapping[str, int]]) -> Trial:
    rng = np.random.default_rng(_SEED)
    feeds = {f"{i}/{spec.name}": _random(spec, each, rng) for i, each in enumerate(sizes) for spec in specs}
    return Trial({"shapes": {spec.name: list(spec.shape) for spec in specs}, "feeds": len(sizes)}, feeds)


def _random(spec: TensorSpec, sizes: Mapping[str, int], rng: np.random.Generator) -> Array:
    """A small value for choosing a route."""
    shape = [size if isinstance(size, int) else sizes[size] for size in spec.shape]
    kind = np.dtype(spec.dtype)
    low, high = spec.value_range or (0.0, 1.0 if kind.kind == "f" else 2.0)
    if kind.kind == "f":
        return (low + (high - low) * rng.random(shape)).astype(kind)
    return rng.integers(int(low), max(int(high), int(low) + 1), shape).astype(kind)
