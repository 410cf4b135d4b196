"""Generated integers as flags that keep something, where the model makes no finite numbers of others.

A mask holds 0 and 1.  Its file does not say so, and a mask of 3 makes infinities of a model that adds the largest
negative number where the mask is 0.  A mask that hides everything makes NaN of most softmaxes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from convertkit.artifact import Array
from convertkit.parity.edge_inputs import NOTHING_KEPT, with_a_key
from convertkit.parity.values import Recording
from convertkit.stage import Feed, Outputs, Runner


def with_flags(recording: Recording, runner: Runner) -> Recording:
    """``recording`` with masks in the integers and flags of those usual feeds that need it.

    Models with state keep theirs.  ``runner`` executes the artifact of the recording.
    """
    if any(spec.is_state for spec in recording.artifact.inputs):
        return recording
    feeds, outputs = list(recording.feeds), list(recording.outputs)
    for place in range(recording.usual):
        if is_finite(outputs[place]) or not any(value.dtype.kind in "iub" for value in feeds[place].values()):
            continue
        flags: Feed = {name: _flags(value) for name, value in feeds[place].items()}
        answer = runner.run(flags)
        if is_finite(answer):
            feeds[place], outputs[place] = flags, answer
    if all(new is old for new, old in zip(feeds, recording.feeds, strict=True)):
        return recording
    return replace(recording, feeds=tuple(feeds), outputs=tuple(outputs))


def without_empty_masks(recording: Recording) -> Recording:
    """``recording`` without the edge input of empty masks where the model makes no finite numbers of them."""
    if recording.edges[-1:] != (NOTHING_KEPT,) or is_finite(recording.outputs[-1]):
        return recording
    return replace(
        recording,
        feeds=recording.feeds[:-1],
        outputs=recording.outputs[:-1],
        edges=recording.edges[:-1],
        states=recording.states[:-1],
    )


def is_finite(outputs: Outputs) -> bool:
    """Whether no float is infinite or NaN."""
    return all(bool(np.isfinite(value).all()) for value in outputs.values() if value.dtype.kind == "f")


def _flags(value: Array) -> Array:
    """Integers as 0 and 1, which masks and ids take alike; drawn, not all equal.  Each row of several keeps one."""
    if value.dtype.kind not in "iub":
        return value
    drawn = (value % 2).astype(value.dtype) if value.dtype.kind != "b" else value
    return with_a_key(drawn) if drawn.ndim and drawn.shape[-1] > 1 else drawn
