"""Inputs between two others, on which an output that saturates takes a value that tells something.

Where a sigmoid or a softmax says 0 or 1 for everything that was drawn, results that agree tell little.  Between an
input for which it says 0 and one for which it says 1 lie some for which it says neither: they are found by bisection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations, islice

import numpy as np

from convertkit.artifact import Array, TensorSpec
from convertkit.parity.compare import AT_EDGE, Power
from convertkit.parity.feeds import is_brief
from convertkit.parity.values import Recording
from convertkit.stage import Feed, Outputs, Runner

_WANTED = 3
_PAIRS = 12
_ORDERS = 64
"""In so many orders the integers of one input become those of the other: a step of one of them is a jump."""
_HALVINGS = 32
_RUNS, _BRIEF_RUNS = 1500, 100
"""The model is run so often at most; a large one, which is compared on fewer inputs, seldom."""
_APART = 0.5
"""Two values of an output lie at both ends where they differ by that part of its range."""


def with_between(recording: Recording, runner: Runner) -> Recording:
    """``recording`` with edge inputs between its usual feeds where all that it has found saturates.

    Models with state keep theirs.  ``runner`` executes the artifact of the recording.
    """
    told = {spec.name: _power(recording, spec) for spec in recording.artifact.outputs}
    names = [name for name, power in told.items() if power.startswith("saturated")]
    if not names or "ok" in told.values() or any(spec.is_state for spec in recording.artifact.inputs):
        return recording
    found = list(islice(_between(recording, names, runner), _WANTED))
    return replace(
        recording,
        feeds=(*recording.feeds, *(feed for feed, _ in found)),
        outputs=(*recording.outputs, *(outputs for _, outputs in found)),
        edges=(*recording.edges, *(f"between inputs, {place + 1}" for place in range(len(found)))),
        states=(*recording.states, *({} for _ in found)) if recording.states else (),
    )


def _power(recording: Recording, spec: TensorSpec) -> str:
    """What the values of an output tell, edge inputs included."""
    power = Power(discrete=spec.discrete)
    for place, outputs in enumerate(recording.outputs):
        power.add(outputs[spec.name], recording.name_of(place))
    return power.verdict()


def _between(recording: Recording, names: list[str], runner: Runner) -> Iterator[tuple[Feed, Outputs]]:
    """Inputs on which one of the outputs is at no end, at most one from each pair of usual feeds."""
    rng = np.random.default_rng(0)
    pairs = list(islice(combinations(range(recording.usual), 2), _PAIRS))
    whole = all(value.dtype.kind != "f" for value in recording.feeds[0].values())
    left, turns = set(pairs), _halvings(recording.feeds[0])
    runs = _BRIEF_RUNS if is_brief(recording.artifact.size_bytes) else _RUNS
    for _ in range(_ORDERS if whole else 1):
        for first, last in sorted(left):
            if (runs := runs - turns) < 0:
                return
            ends = _ends(recording, names, first, last)
            found = None if ends is None else _bisected(_turned(ends, rng), ends, runner)
            if found is not None or ends is None:
                left.remove((first, last))
            if found is not None:
                yield found


@dataclass(frozen=True, slots=True)
class _Ends:
    """Two feeds of the same shapes, and the element of an output that is ``values`` for them."""

    feeds: tuple[Feed, Feed]
    name: str
    place: int
    values: tuple[float, float]


def _ends(recording: Recording, names: list[str], first: int, last: int) -> _Ends | None:
    """An element of one of the outputs that lies at both ends of its range for these two feeds."""
    pair = _pair(recording.feeds, first, last)
    for name in names:
        one, other = (np.asarray(recording.outputs[place][name], np.float64).reshape(-1) for place in (first, last))
        if pair is None or one.shape != other.shape or not one.size:
            continue
        place = int(np.abs(one - other).argmax())
        if abs(one[place] - other[place]) > _APART * _range(recording, name):
            return _Ends(pair, name, place, (float(one[place]), float(other[place])))
    return None


def _turned(ends: _Ends, rng: np.random.Generator) -> Mapping[str, Array]:
    """An order of the elements of each input."""
    return {key: rng.permutation(value.size).reshape(value.shape) for key, value in ends.feeds[0].items()}


def _pair(feeds: tuple[Feed, ...], first: int, last: int) -> tuple[Feed, Feed] | None:
    """Two feeds of the same shapes, of numbers alone."""
    one, other = feeds[first], feeds[last]
    alike = all(one[name].shape == other[name].shape and one[name].dtype.kind in "fiub" for name in one)
    return (one, other) if alike else None


def _range(recording: Recording, name: str) -> float:
    values = [outputs[name][np.isfinite(outputs[name])] for outputs in recording.outputs]
    return max(float(v.max(initial=-np.inf)) for v in values) - min(float(v.min(initial=np.inf)) for v in values)


def _bisected(turns: Mapping[str, Array], ends: _Ends, runner: Runner) -> tuple[Feed, Outputs] | None:
    """What lies between the two feeds, where the element is at none of its ends."""
    one, other = ends.feeds
    low, high, edge = 0.0, 1.0, AT_EDGE * abs(ends.values[1] - ends.values[0])
    for _ in range(_halvings(one)):
        share = (low + high) / 2
        feed = {key: _mixed(value, other[key], turns[key], share) for key, value in one.items()}
        outputs = runner.run(feed)
        value = float(outputs[ends.name].reshape(-1)[ends.place])
        away = [abs(value - end) for end in ends.values]
        if not np.isfinite(value) or min(away) > edge:
            return (feed, outputs) if np.isfinite(value) else None
        low, high = (share, high) if away[0] < away[1] else (low, share)
    return None


def _halvings(feed: Feed) -> int:
    """How often the way between two feeds can be halved."""
    if any(value.dtype.kind == "f" for value in feed.values()):
        return _HALVINGS
    return max(value.size for value in feed.values()).bit_length()


def _mixed(one: Array, other: Array, turns: Array, share: float) -> Array:
    """Floats on the line between the two; of integers, which mean choices, that share from the second one."""
    if one.dtype.kind == "f":
        return (one + share * (other.astype(np.float64) - one)).astype(one.dtype)
    return np.where(turns < share * one.size, other, one).astype(one.dtype)
