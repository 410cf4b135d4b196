"""Generated inputs on which a model's arithmetic can be judged at all.

Noise that a model was never made for may drive it into chaos: the last bit of one input then moves
the output by more than any tolerance, and two correct runtimes disagree.  Such a feed says nothing
about the runtimes, so a gentler one takes its place.  Real samples are never replaced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from convertkit.artifact import Array, Artifact, TensorSpec
from convertkit.parity.feeds import proof_feeds
from convertkit.parity.replay import Recording, record
from convertkit.stage import FLOAT32, Feed, Outputs, Runner

_NUDGE = 2.0**-23
_QUIETER = 0.25
_ATTEMPTS = 3
_WHITE_SEED = 0x57F7


def settled(title: str, artifact: Artifact, runner: Runner, feeds: Sequence[Feed]) -> tuple[Recording, tuple[str, ...]]:
    """A recording of ``feeds`` with ill-conditioned ones replaced, and a note where that was needed.

    A feed is ill-conditioned where nudging its floats by one unit in the last place moves an output by
    more than a float32 step may depart.  Stateful models keep their feeds: each
    call's state depends on the calls before it.
    """
    if any(spec.is_state for spec in artifact.inputs):
        return record(title, artifact, runner, feeds), ()
    pairs = [_settled(runner, feed) for feed in feeds]
    recording = Recording(title, artifact, tuple(feed for feed, _ in pairs), tuple(outputs for _, outputs in pairs))
    changed = sum(gentle is not feed for (gentle, _), feed in zip(pairs, feeds, strict=True))
    if not changed:
        return recording, ()
    note = f"{changed} of {len(feeds)} generated inputs drove the model into chaos and gave way to gentler ones; "
    return recording, (f"{note}--calib with real samples proves more",)


def foreseen(inputs: Sequence[TensorSpec], seed: int) -> tuple[Feed, ...]:
    """What :func:`settled` will run where no generated feed is ill-conditioned; empty for a model with state."""
    if any(spec.is_state for spec in inputs):
        return ()
    return tuple(each for feed in proof_feeds(inputs, None, seed) for each in (feed, nudged(feed)))


def _settled(runner: Runner, feed: Feed) -> tuple[Feed, Outputs]:
    """``feed``, or the first gentler one that is well-conditioned, with what the model makes of it."""
    first = runner.run(feed)
    if not is_chaotic(first, runner.run(nudged(feed))):
        return feed, first
    for candidate in _gentler(feed):
        outputs = runner.run(candidate)
        if not is_chaotic(outputs, runner.run(nudged(candidate))):
            return candidate, outputs
    return feed, first


def _gentler(feed: Feed) -> Iterator[Feed]:
    """Quieter copies, for nets that noise saturates; then white noise of the same range.

    White, because a logarithm of a spectrum has no stable value where a smooth signal leaves only the rounding errors
    of the transform.
    """
    for power in range(1, _ATTEMPTS):
        yield {name: _scaled(value, _QUIETER**power) for name, value in feed.items()}
    rng = np.random.default_rng(_WHITE_SEED)
    for _ in range(_ATTEMPTS):
        yield {name: _white(value, rng) for name, value in feed.items()}


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
