"""Inputs that a parity proof runs: the user's own samples where there are any, else seeded random ones.

Sizes of named dimensions vary from feed to feed, so that a silently specialised dimension is found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

import ml_dtypes
import numpy as np

from convertkit.artifact import Array, Dim, TensorSpec
from convertkit.parity.free_sizes import SECOND_BATCH, named_sizes
from convertkit.parity.replay import batched
from convertkit.stage import Feed, FeedSource

GENERATED = 6
FROM_CALIBRATION = 8
UNTOLD = 4
"""Integers of which nobody told the range stay below this."""


def proof_feeds(
    inputs: Sequence[TensorSpec], calibration: FeedSource | None, seed: int, attempt: int = 0
) -> tuple[Feed, ...]:
    """The feeds that every step of one export is compared on.

    With calibration data its first samples, plus one batch of three where the batch is free (two for a model with
    state); otherwise generated feeds, the last ones at a second size; ``attempt`` turns through sizes
    of images and sequences, as only the model knows which ones it takes.  State inputs are left to the replay.
    """
    specs = tuple(spec for spec in inputs if not spec.is_state)
    stateful = len(specs) < len(inputs)
    if calibration is not None:
        samples = list(islice(calibration, FROM_CALIBRATION))
        if batch_dim(specs) is not None and len(samples) > 1:
            every = [spec.name for spec in specs]
            # Samples of other sizes (texts, recordings) make no batch with the first one.
            alike = [feed for feed in samples if all(feed[name].shape == samples[0][name].shape for name in every)]
            samples.append(batched(alike, every, SECOND_BATCH))
            if stateful:  # state shows at the second call of a sequence
                samples.append(batched(alike[::-1], every, SECOND_BATCH))
        return tuple(samples)
    first, second = (named_sizes(specs, attempt, turn) for turn in (0, 1))
    sizes = [first] * GENERATED if not first else [first] * (GENERATED - 2) + [second] * (3 if stateful else 2)
    rng = np.random.default_rng(seed)
    return tuple(generated_feed(specs, size, rng, kind) for kind, size in enumerate(sizes))


def batch_dim(specs: Sequence[TensorSpec]) -> str | None:
    """The named dimension that leads every input of rank 1 or more, None where there is none."""
    leading = {spec.source_shape[0] for spec in specs if spec.shape}
    (only,) = leading if len(leading) == 1 else (None,)
    return only if isinstance(only, str) else None


def generated_feed(
    specs: Sequence[TensorSpec], sizes: Mapping[str, int], rng: np.random.Generator, kind: int = 0
) -> Feed:
    """Random values for every spec; ``kind`` turns through distributions so that some have power.

    ``sizes`` gives named dimensions a size in elements; a missing name becomes 1.
    """
    return {spec.name: _values(spec, _shape(spec.source_shape, sizes), rng, kind) for spec in specs}


def _shape(dims: Sequence[Dim], sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(dim if isinstance(dim, int) else sizes.get(dim, 1) for dim in dims)


def _values(spec: TensorSpec, shape: tuple[int, ...], rng: np.random.Generator, kind: int) -> Array:
    dtype = np.dtype(getattr(ml_dtypes, spec.dtype, "object" if spec.dtype == "string" else spec.dtype))
    if dtype.kind == "O":
        return np.array([f"text {rng.integers(1000)}" for _ in range(int(np.prod(shape)))], dtype).reshape(shape)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if spec.rising:
        return _rising(rng, shape, int(spec.value_range[1]) if spec.value_range else 2).astype(dtype)
    if spec.value_range is not None:
        low, high = spec.value_range
        if dtype.kind in "iu" and dtype.itemsize <= 2 and high - low >= 256 and kind % 3:
            return _pixels(rng, shape, int(low), int(high), kind).astype(dtype)
        values = rng.integers(int(low), int(high), shape) if dtype.kind in "iu" else rng.uniform(low, high, shape)
        return np.asarray(values).astype(dtype)
    if dtype.kind in "iu":
        return rng.integers(0, 2 if kind % 3 == 0 else UNTOLD, shape).astype(dtype)
    if dtype.kind == "c":
        return np.asarray(rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
    return _FLOATS[kind % len(_FLOATS)](rng, shape).astype(dtype)


def _rising(rng: np.random.Generator, shape: tuple[int, ...], high: int) -> Array:
    values = np.sort(rng.integers(0, high, shape), axis=-1)
    values[..., :1] = 0
    return values


def _pixels(rng: np.random.Generator, shape: tuple[int, ...], low: int, high: int, kind: int) -> Array:
    """Small integers that stand for reals: strokes on a ground, or a part of the range; noise alone saturates nets."""
    if kind % 3 == 1:
        return np.where(rng.random(shape) < 0.15, high - 1, low)
    first, last = sorted(int(each) for each in rng.integers(low, high, 2))
    return rng.integers(first, last + 1, shape)


def _standard(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.asarray(rng.standard_normal(shape))


def _unit(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.asarray(rng.random(shape))


def _smooth(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Slowly varying along the last axis, like audio or image rows."""
    noise = rng.standard_normal(shape)
    return np.asarray(0.1 * np.cumsum(noise, axis=-1) if shape else noise)


_FLOATS = (_standard, _unit, _smooth)
