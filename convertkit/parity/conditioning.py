"""Generated inputs on which a model's arithmetic can be judged at all.

Noise that a model was never made for may drive it into chaos: the last bit of one input then moves
the output by more than any tolerance, and two correct runtimes disagree.  Such a feed says nothing
about the runtimes, so a quieter one takes its place.  Real samples are never replaced.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from convertkit.artifact import Array, Artifact, TensorSpec
from convertkit.parity.feeds import proof_feeds
from convertkit.parity.replay import Recording, record
from convertkit.stage import FLOAT32, Feed, Outputs, Runner

_NUDGE = 2.0**-23
_QUIETER = 0.25
_ATTEMPTS = 3


def settled(title: str, artifact: Artifact, runner: Runner, feeds: Sequence[Feed]) -> tuple[Recording, tuple[str, ...]]:
    """A recording of ``feeds`` with ill-conditioned ones made quieter, and a note where that was needed.

    A feed is ill-conditioned where nudging its floats by one unit in the last place moves an output by
    more than a float32 step may depart.  Stateful models keep their feeds: each
    call's state depends on the calls before it.
    """
    if any(spec.is_state for spec in artifact.inputs):
        return record(title, artifact, runner, feeds), ()
    pairs = [_settled(runner, feed) for feed in feeds]
    recording = Recording(title, artifact, tuple(feed for feed, _ in pairs), tuple(outputs for _, outputs in pairs))
    changed = sum(quiet is not feed for (quiet, _), feed in zip(pairs, feeds, strict=True))
    if not changed:
        return recording, ()
    note = f"{changed} of {len(feeds)} generated inputs drove the model into chaos and were made quieter; "
    return recording, (f"{note}--calib with real samples proves more",)


def foreseen(inputs: Sequence[TensorSpec], seed: int) -> tuple[Feed, ...]:
    """What :func:`settled` will run where no generated feed is ill-conditioned; empty for a model with state."""
    if any(spec.is_state for spec in inputs):
        return ()
    return tuple(each for feed in proof_feeds(inputs, None, seed) for each in (feed, _nudged(feed)))


def _settled(runner: Runner, feed: Feed) -> tuple[Feed, Outputs]:
    """``feed``, or the first quieter one that is well-conditioned, with what the model makes of it."""
    limit = FLOAT32.relative or 0.0
    candidate, outputs = feed, runner.run(feed)
    first = outputs
    for _ in range(_ATTEMPTS):
        if _sensitivity(outputs, runner.run(_nudged(candidate))) <= limit:
            return candidate, outputs
        candidate = {name: _quieter(value) for name, value in candidate.items()}
        outputs = runner.run(candidate)
    return feed, first


def _sensitivity(plain: Outputs, nudged: Outputs) -> float:
    worst = 0.0
    for name, value in plain.items():
        if value.dtype.kind != "f" or value.shape != nudged[name].shape or not np.isfinite(value).all():
            continue
        scale = float(np.abs(value).max(initial=0.0))
        if scale:
            worst = max(worst, float(np.abs(nudged[name] - value).max()) / scale)
    return worst


def _nudged(feed: Feed) -> Feed:
    return {name: _nudge(value) for name, value in feed.items()}


def _nudge(value: Array) -> Array:
    if value.dtype != np.float32 or value.size == 0:
        return value
    signs = np.where(np.arange(value.size).reshape(value.shape) % 3 == 0, _NUDGE, -_NUDGE)
    nudged: Array = (value * (1 + signs)).astype(np.float32)
    return nudged


def _quieter(value: Array) -> Array:
    return (value * np.float32(_QUIETER)).astype(value.dtype) if value.dtype.kind == "f" else value
