"""Inputs that a parity proof runs: the user's own samples where there are any, else seeded random ones.

Sizes of named dimensions vary from feed to feed, so that a silently specialised dimension is found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import ml_dtypes
import numpy as np

from convertkit.artifact import Array, Dim, TensorSpec
from convertkit.parity.edge_inputs import UNTOLD, edge_feeds, with_a_key
from convertkit.parity.free_sizes import NOT_STATED, SECOND_BATCH, named_sizes
from convertkit.parity.natural import natural
from convertkit.stage import Feed, FeedSource

GENERATED = 6
_BRIEF = 3
FROM_CALIBRATION = 8
_BRIEF_ABOVE_BYTES = 2 << 20
"""A larger model takes longer to run than to convert, so it runs fewer inputs."""


@dataclass(frozen=True, slots=True)
class ProofInputs:
    """The feeds that every step of one export is compared on; ``edges`` names the last of them, the edge inputs."""

    feeds: tuple[Feed, ...]
    edges: tuple[str, ...]

    @property
    def usual(self) -> tuple[Feed, ...]:
        """The feeds that are not edge inputs."""
        return self.feeds[: len(self.feeds) - len(self.edges)]

    @property
    def edge_feeds(self) -> tuple[Feed, ...]:
        """The edge inputs, in the order of their names."""
        return self.feeds[len(self.feeds) - len(self.edges) :]


def is_brief(size_bytes: int) -> bool:
    """Whether a model of that size is compared on fewer feeds."""
    return size_bytes > _BRIEF_ABOVE_BYTES


def proof_inputs(
    inputs: Sequence[TensorSpec],
    calibration: FeedSource | None,
    seed: int,
    attempt: int = 0,
    *,
    brief: bool = False,
    stated: Mapping[str, Sequence[int]] = NOT_STATED,
) -> ProofInputs:
    """What :func:`proof_feeds` gives, and edge inputs made of it."""
    feeds = proof_feeds(inputs, calibration, seed, attempt, brief=brief, stated=stated)
    return with_edges(inputs, feeds, brief=brief)


def with_edges(inputs: Sequence[TensorSpec], feeds: tuple[Feed, ...], *, brief: bool = False) -> ProofInputs:
    """``feeds``, and edge inputs made of them."""
    specs = tuple(spec for spec in inputs if not spec.is_state)
    edges = tuple(edge_feeds(specs, feeds, brief=brief)) if feeds and feeds[0] else ()
    return ProofInputs((*feeds, *(feed for _, feed in edges)), tuple(name for name, _ in edges))


def proof_feeds(
    inputs: Sequence[TensorSpec],
    calibration: FeedSource | None,
    seed: int,
    attempt: int = 0,
    *,
    brief: bool = False,
    stated: Mapping[str, Sequence[int]] = NOT_STATED,
) -> tuple[Feed, ...]:
    """Feeds of usual values: the user's samples, or generated ones.

    With calibration data its first samples, plus one batch of three where the batch is dynamic (two for a model with
    state); otherwise generated feeds, the last ones at a second size; ``attempt`` turns through sizes
    of images and sequences, as only the model knows which ones it takes.  ``brief`` generates three instead of six
    for models without state.  ``stated`` are the sizes that dimensions may have.  State inputs are left to the replay.
    """
    specs = tuple(spec for spec in inputs if not spec.is_state)
    stateful = len(specs) < len(inputs)
    if calibration is not None:
        return _of_samples(list(islice(calibration, FROM_CALIBRATION)), specs, stateful, stated)
    first, second = (named_sizes(specs, attempt, turn, stated) for turn in (0, 1))
    count, at_second = (_BRIEF, 1) if brief and not stateful else (GENERATED, 2)
    sizes = [first] * count if not first else [first] * (count - at_second) + [second] * (3 if stateful else at_second)
    rng = np.random.default_rng(seed)
    free = [not stateful and kind % 3 == _FREE_FLAGS for kind in range(len(sizes))]
    return tuple(generated_feed(specs, size, rng, kind, free_flags=free[kind]) for kind, size in enumerate(sizes))


def _of_samples(
    samples: list[Feed], specs: Sequence[TensorSpec], stateful: bool, stated: Mapping[str, Sequence[int]]
) -> tuple[Feed, ...]:
    """The samples, each in the first batch that is stated, and batches of another size behind them."""
    batch = batch_dim(specs)
    if batch is None or not samples:
        return tuple(samples)
    every = [spec.name for spec in specs]
    # Samples of other sizes (texts, recordings) make no batch with the first one.
    alike = [feed for feed in samples if all(feed[name].shape == samples[0][name].shape for name in every)]
    sizes = stated.get(batch, (1, SECOND_BATCH))
    again = len(samples) > 1 or batch in stated
    if sizes[0] > 1:
        samples = [batched([*alike[place:], *alike[:place]], every, sizes[0]) for place in range(len(alike))]
    elif batch in stated:
        samples = [batched([feed], every, sizes[0]) for feed in samples]
    if again:
        samples.append(batched(alike, every, sizes[-1]))
        if stateful:  # state shows at the second call of a sequence
            samples.append(batched(alike[::-1], every, sizes[-1]))
    return tuple(samples)


def batch_dim(specs: Sequence[TensorSpec]) -> str | None:
    """The named dimension that leads every input of rank 1 or more, None where there is none."""
    leading = {spec.source_shape[0] for spec in specs if spec.shape}
    (only,) = leading if len(leading) == 1 else (None,)
    return only if isinstance(only, str) else None


def generated_feed(
    specs: Sequence[TensorSpec],
    sizes: Mapping[str, int],
    rng: np.random.Generator,
    kind: int = 0,
    *,
    free_flags: bool = False,
) -> Feed:
    """Random values for every spec; ``kind`` turns through distributions so that some have power.

    ``sizes`` gives named dimensions a size in elements; a missing name becomes 1.  Flags may be a mask, so each row of
    several keeps one of them, but with ``free_flags``.
    """
    feed = {spec.name: _values(spec, _shape(spec.source_shape, sizes), rng, kind) for spec in specs}
    if free_flags:
        return feed
    return {
        spec.name: with_a_key(feed[spec.name]) if _are_flags(spec, feed[spec.name]) else feed[spec.name]
        for spec in specs
    }


def _are_flags(spec: TensorSpec, drawn: Array) -> bool:
    """Whether these are flags, in rows of several."""
    if drawn.size == 0 or not drawn.ndim or drawn.shape[-1] < 2 or spec.rising or drawn.dtype.kind not in "iub":
        return False
    return drawn.dtype.kind == "b" or (spec.value_range == (0, 2) if spec.value_range else bool(drawn.max() < 2))


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
    if kind == _NATURAL_KIND and (made := natural(rng, shape)) is not None:
        return made.astype(dtype)
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
_FREE_FLAGS = 2
_NATURAL_KIND = 1
"""Of the feeds, the one that is an image or a recording where its shape may be of one."""


def batched(feeds: Sequence[Feed], names: Sequence[str], count: int) -> Feed:
    """One feed of ``count`` rows: those of one or more feeds in turn along axis 0, scalars as the first has them."""
    chosen = [feeds[index % len(feeds)] for index in range(count)]
    return {
        name: np.concatenate([feed[name] for feed in chosen])[:count] if np.ndim(chosen[0][name]) else chosen[0][name]
        for name in names
    }
