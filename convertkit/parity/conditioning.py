"""Generated inputs on which a model's arithmetic can be judged at all.

Noise that a model was never made for may drive it into chaos: the last bit of one input then moves
the output by more than any tolerance, and two correct runtimes disagree.  Such a feed says nothing
about the runtimes, so a gentler one takes its place.  Real samples are never replaced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from convertkit.artifact import Array, Artifact, TensorSpec
from convertkit.parity.feeds import proof_feeds
from convertkit.parity.free_sizes import attempts
from convertkit.parity.replay import Recording, record
from convertkit.stage import FLOAT32, Feed, Outputs, Runner, Tolerance

_NUDGE = 2.0**-23
_QUIETER = 0.25
_ATTEMPTS = 3
_ROUNDINGS = 16
"""A runtime rounds in every layer, a nudge once: two right ones depart by a few times what one nudge does."""
_SHAKES = 4
_WHITE_SEED, _SHAKEN_SEED = 0x57F7, 0x5AEC


def settled(
    title: str, artifact: Artifact, runner: Runner, feeds: Sequence[Feed], *, lossy: bool
) -> tuple[Recording, tuple[str, ...]]:
    """A recording of ``feeds`` without those that prove nothing, and a note where there were such.

    A feed of which the source itself makes infinities or NaN (a mask of 3, where 0 and 1 are meant) gives way to a
    gentler one.  So does an ill-conditioned one where ``lossy`` steps follow, whose noise it would amplify.
    Lossless steps that agree on such a feed have proven more than on any other, so only where they depart on
    it is it asked for (:func:`well_conditioned`).  Stateful models keep their feeds: each call's state depends on the
    calls before it.
    """
    return _replaced(record(title, artifact, runner, feeds), runner, nudges=lossy)


def well_conditioned(recording: Recording, runner: Runner) -> tuple[Recording, tuple[str, ...]]:
    """``recording`` with ill-conditioned feeds replaced, and a note where there were such.

    A feed is ill-conditioned where nudging its floats by one unit in the last place moves an output by
    more than a float32 step may depart.
    """
    return _replaced(recording, runner, nudges=True)


def calmed(
    before: Recording, after: Recording, tolerance: Tolerance, runner: Runner
) -> tuple[tuple[Feed, ...], str] | None:
    """Calmer feeds for a step that departs on loud ones, and a note; None where rounding does not explain it.

    ``before`` and ``after`` are recordings of the same generated feeds and ``runner`` executes the former.  Random
    nets amplify loud noise: files of several right runtimes then depart by more than any one nudge shows.  Rounding
    explains a departure of at most 16 times what one unit in the last place of the inputs does, or of what 16 units do:
    those reach the next tie of scores, at which a choice of the best is another one.  Any other departure is a fault,
    and stays one.
    """
    if tolerance.lossy or tolerance.relative is None or any(spec.is_state for spec in before.artifact.inputs):
        return None
    feeds: list[Feed] = []
    for feed, expected, got in zip(before.feeds, before.outputs, after.outputs, strict=True):
        departure = _departure(expected, got)
        if departure <= tolerance.relative:
            feeds.append(feed)
            continue
        if not _is_explained(runner, feed, expected, departure):
            return None
        feeds.append(min(_gentler(feed), key=lambda candidate: _unrest(runner, candidate, runner.run(candidate))))
    changed = sum(calm is not feed for calm, feed in zip(feeds, before.feeds, strict=True))
    if not changed:
        return None
    note = f"{changed} of {len(feeds)} generated inputs amplify single roundings and gave way to calmer ones; "
    return tuple(feeds), f"{note}--calib with real samples proves more"


def foreseen(inputs: Sequence[TensorSpec], seed: int, *, lossy: bool) -> tuple[Feed, ...]:
    """What :func:`settled` will run where no generated feed has to be replaced.

    Empty for a model with state, and where several choices of sizes may have to be tried.
    """
    if any(spec.is_state for spec in inputs) or attempts(inputs) > 1:
        return ()
    feeds = proof_feeds(inputs, None, seed)
    return tuple(each for feed in feeds for each in (feed, nudged(feed))) if lossy else feeds


def _replaced(recording: Recording, runner: Runner, *, nudges: bool) -> tuple[Recording, tuple[str, ...]]:
    if any(spec.is_state for spec in recording.artifact.inputs):
        return recording, ()
    known = zip(recording.feeds, recording.outputs, strict=True)
    pairs = [_settled(runner, feed, outputs, nudges=nudges) for feed, outputs in known]
    changed = sum(gentle is not feed for (gentle, _), feed in zip(pairs, recording.feeds, strict=True))
    if not changed:
        return recording, ()
    note = f"{changed} of {len(pairs)} generated inputs drove the model into chaos or infinity"
    feeds, outputs = tuple(feed for feed, _ in pairs), tuple(outputs for _, outputs in pairs)
    replaced = replace(recording, feeds=feeds, outputs=outputs)
    return replaced, (f"{note} and gave way to gentler ones; --calib with real samples proves more",)


def _settled(runner: Runner, feed: Feed, first: Outputs, *, nudges: bool) -> tuple[Feed, Outputs]:
    """``feed``, or the first gentler one that is well-conditioned, with what the model makes of it.

    ``first`` is what it makes of ``feed``.
    """
    if not is_finite(first):
        candidates = [{name: _flags(value) for name, value in feed.items()}, *_gentler(feed)]
    elif nudges and is_chaotic(first, runner.run(nudged(feed))):
        candidates = [*_gentler(feed)]
    else:
        return feed, first
    for candidate in candidates:
        outputs = runner.run(candidate)
        if is_finite(outputs) and not is_chaotic(outputs, runner.run(nudged(candidate))):
            return candidate, outputs
    return feed, first


def is_finite(outputs: Outputs) -> bool:
    """Whether no float is infinite or NaN."""
    return all(bool(np.isfinite(value).all()) for value in outputs.values() if value.dtype.kind == "f")


def _flags(value: Array) -> Array:
    """Integers as 0 and 1, which masks and ids take alike; drawn, not all equal."""
    return (value % 2).astype(value.dtype) if value.dtype.kind in "iu" else value


def _is_explained(runner: Runner, feed: Feed, expected: Outputs, departure: float) -> bool:
    return departure <= max(
        _ROUNDINGS * _departure(expected, runner.run(nudged(feed))), _unrest(runner, feed, expected)
    )


def _unrest(runner: Runner, feed: Feed, outputs: Outputs) -> float:
    """How far ``outputs`` of ``feed`` go when its floats move by what a runtime's roundings may sum up to."""
    rng = np.random.default_rng(_SHAKEN_SEED)
    shaken = [{name: _shaken(value, rng) for name, value in feed.items()} for _ in range(_SHAKES)]
    return max(_departure(outputs, runner.run(each)) for each in shaken)


def _shaken(value: Array, rng: np.random.Generator) -> Array:
    if value.dtype != np.float32 or value.size == 0:
        return value
    moved: Array = (value * (1 + _ROUNDINGS * _NUDGE * rng.uniform(-1, 1, value.shape))).astype(np.float32)
    return moved


def _departure(before: Outputs, after: Outputs) -> float:
    """The largest difference of floats relative to each output's scale; infinite where something else differs."""
    return max((_relative(value, after[name]) for name, value in before.items()), default=0.0)


def _relative(value: Array, other: Array) -> float:
    if np.array_equal(value, other, equal_nan=value.dtype.kind == "f"):
        return 0.0
    scale = _largest(value) if value.dtype.kind == "f" and value.shape == other.shape else 0.0
    difference = _largest(other - value) / scale if scale else float("inf")
    return difference if np.isfinite(difference) else float("inf")


def _largest(value: Array) -> float:
    return float(np.abs(value).max(initial=0.0))


def _gentler(feed: Feed) -> Iterator[Feed]:
    """Quieter copies, for nets that noise saturates; then white noise of the same range.

    White, because a logarithm of a spectrum has no stable value where a smooth signal leaves only the rounding errors
    of the transform.
    """
    yield from _quieter(feed)
    rng = np.random.default_rng(_WHITE_SEED)
    for _ in range(_ATTEMPTS):
        yield {name: _white(value, rng) for name, value in feed.items()}


def _quieter(feed: Feed) -> Iterator[Feed]:
    for power in range(1, _ATTEMPTS):
        yield {name: _scaled(value, _QUIETER**power) for name, value in feed.items()}


def is_chaotic(plain: Outputs, nudged: Outputs) -> bool:
    """Whether one unit in the last place of the inputs moves an output by more than a float32 step may depart."""
    return _sensitivity(plain, nudged) > (FLOAT32.relative or 0.0)


def _sensitivity(plain: Outputs, nudged: Outputs) -> float:
    worst = 0.0
    for name, value in plain.items():
        if value.dtype.kind != "f" or value.shape != nudged[name].shape or not np.isfinite(value).all():
            continue
        scale = float(np.abs(value).max(initial=0.0))
        if scale:
            worst = max(worst, float(np.abs(nudged[name] - value).max()) / scale)
    return worst


def nudged(feed: Feed) -> Feed:
    """``feed`` with every float moved by one unit in the last place."""
    return {name: _nudge(value) for name, value in feed.items()}


def _nudge(value: Array) -> Array:
    if value.dtype != np.float32 or value.size == 0:
        return value
    signs = np.where(np.arange(value.size).reshape(value.shape) % 3 == 0, _NUDGE, -_NUDGE)
    nudged: Array = (value * (1 + signs)).astype(np.float32)
    return nudged


def _scaled(value: Array, factor: float) -> Array:
    return (value * np.float32(factor)).astype(value.dtype) if value.dtype.kind == "f" else value


def _white(value: Array, rng: np.random.Generator) -> Array:
    if value.dtype.kind != "f" or value.size == 0:
        return value
    drawn = value.mean() + value.std() * rng.standard_normal(value.shape)
    return np.asarray(np.clip(drawn, value.min(), value.max())).astype(value.dtype)
