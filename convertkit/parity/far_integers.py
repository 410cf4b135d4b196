"""Integers far from those that are drawn where nobody told the range: below zero, and as far as their type goes.

Generated integers stay small, as most stand for rows of a table.  Of others, such as counts, times and offsets, that
tells little: a shift of negative numbers, or a number that a runtime keeps in fewer bits, is right on small ones.  The
source itself says which integers it takes; what it refuses, or makes no finite numbers of, is not compared.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from convertkit.artifact import Array, TensorSpec
from convertkit.errors import FeedError, SourceError, ToolError
from convertkit.parity.flags import is_finite
from convertkit.parity.truth import Truth
from convertkit.parity.values import Recording
from convertkit.stage import BoundedRunner, Feed, Outputs, Runner

_MOST_INPUTS = 4
_STEPS = (1 << 12, 1 << 16, 1 << 20, 1 << 24)
"""Integers grow in these steps, and no further than the source takes."""
_COMPARED_FROM = 1 << 20
_BELOW, _FAR_BELOW, _WHOLE = "below zero", "far below zero", "all that its type holds"
_BRIEF = (f": {_BELOW}", f": {_WHOLE}", f"2^{_STEPS[-1].bit_length() - 1} and more")
"""Of models that take long to run, these alone are compared."""
_SPREAD = 12_289
"""Neighbours lie so far apart, or less in narrow types: a prime, so that their low bits differ."""
_UNDECIDED = 0.1
"""Roundings that move an output of floats by that part of its largest value leave nothing of it to compare."""
_LONGER, _LEAST_S = 5.0, 0.2
"""Integers that a run takes so many times as long for, and at least that, count something: they grow no further."""
_PATIENCE = 10.0
"""So many times that, and the run is stopped: a loop that counts up to a size may never end from below zero."""


def with_far_integers(
    recording: Recording, open_inputs: Sequence[TensorSpec], runner: Runner, *, brief: bool = False
) -> Recording:
    """``recording`` with edge inputs of integers far from zero, one input at a time, as far as the source takes them.

    ``open_inputs`` are those of whose range nothing is known.  Models with state keep theirs, and masks of 0 and 1 stay
    masks.  ``runner`` executes the artifact of the recording; ``brief`` is for models that take long to run.
    """
    if not recording.usual or any(spec.is_state for spec in recording.artifact.inputs):
        return recording
    chosen = [spec.name for spec in open_inputs if _may_hold_more(spec, recording)][:_MOST_INPUTS]
    found = [each for name in chosen for each in _taken(recording, name, runner)]
    if brief:
        found = [each for each in found if each[0].endswith(_BRIEF)]
    return replace(
        recording,
        feeds=(*recording.feeds, *(feed for _, feed, _ in found)),
        outputs=(*recording.outputs, *(outputs for _, _, outputs in found)),
        edges=(*recording.edges, *(name for name, _, _ in found)),
        states=(*recording.states, *({} for _ in found)) if recording.states else (),
    )


def is_far(edge: str) -> bool:
    """Whether an edge input is one of these, as reports call it: what rounds on purpose is not held to it."""
    return edge.strip('"').rpartition(": ")[2] in (_BELOW, _FAR_BELOW, _WHOLE, *map(_from, _STEPS))


def where_roundings_decide(truth: Truth | None, output: str) -> str:
    """How roundings alone make an output of such integers, as of the sine of 2^30 radians; empty where they do not."""
    if truth is None or truth.values[output].dtype.kind != "f":
        return ""
    moved, largest = (float(np.abs(each).max(initial=0.0)) for each in (truth.spread[output], truth.values[output]))
    return "float32 does not hold what becomes of such integers" if moved > _UNDECIDED * largest else ""


def _may_hold_more(spec: TensorSpec, recording: Recording) -> bool:
    values = [feed[spec.name] for feed in recording.feeds[: recording.usual]]
    if spec.rising or not values[0].size or values[0].dtype.kind not in "iu":
        return False
    return (min(int(each.min()) for each in values), max(int(each.max()) for each in values)) != (0, 1)


def _from(start: int) -> str:
    return f"2^{start.bit_length() - 1} and more"


def _taken(recording: Recording, name: str, runner: Runner) -> Iterator[tuple[str, Feed, Outputs]]:
    """Edge inputs with other integers in ``name``, until the source refuses them."""
    base = recording.feeds[0]
    began = time.perf_counter()
    usual = runner.run(base)
    longest_s, taken = max(_LEAST_S, _LONGER * (time.perf_counter() - began)), []

    def tried(values: Array) -> tuple[Feed, Outputs] | None:
        feed = {**base, name: np.asarray(values, base[name].dtype)}
        began = time.perf_counter()
        outputs = _tried(feed, usual, runner, _PATIENCE * longest_s)
        return None if outputs is None or time.perf_counter() - began > longest_s else (feed, outputs)

    for start, title in _titles(base[name].dtype).items():
        if (found := tried(_above(base[name], start))) is None:
            break
        taken.append(start)
        if title:
            yield f"{name}: {title}", *found
    if base[name].dtype.kind == "u" or (found := tried(-1 - np.abs(base[name]))) is None:
        return
    yield f"{name}: {_BELOW}", *found
    furthest = None
    for start in taken:
        if (found := tried(-1 - _above(base[name], start))) is None:
            break
        furthest = found
    if furthest is not None:
        yield f"{name}: {_FAR_BELOW}", *furthest


def _titles(dtype: np.dtype[Any]) -> Mapping[int, str]:
    """Where integers of that type begin, and what the edge input is called; those without a name are only tried."""
    if np.iinfo(dtype).max < _STEPS[-1]:
        return {1: _WHOLE}
    return {start: _from(start) if start >= _COMPARED_FROM else "" for start in _STEPS}


def _above(value: Array, start: int) -> Array:
    """Integers from ``start`` on, each another one, and over all of a narrow type."""
    places = np.arange(value.size, dtype=np.int64).reshape(value.shape)
    most = int(np.iinfo(value.dtype).max)
    far = start + places * _SPREAD % start + value.astype(np.int64) % 4 if start > 1 else most - places * _SPREAD % most
    return np.asarray(far, value.dtype)


def _tried(feed: Feed, usual: Outputs, runner: Runner, seconds: float) -> Outputs | None:
    """What the source makes of it; None where it refuses, makes other sizes, no finite numbers, or does not end."""
    try:
        outputs = runner.run_within(feed, seconds) if isinstance(runner, BoundedRunner) else runner.run(feed)
    except (SourceError, ToolError, FeedError):
        return None
    sizes = all(outputs[name].shape == value.shape for name, value in usual.items())
    return outputs if sizes and is_finite(outputs) else None
