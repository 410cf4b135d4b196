"""Usual inputs of which a model makes something, where an output is nothing but zeros for all that were drawn.

IsNaN and IsInf say no of every finite number.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from convertkit.artifact import Array
from convertkit.errors import SourceError, ToolError, WorkerError
from convertkit.parity.flags import is_finite
from convertkit.parity.values import Recording
from convertkit.stage import Runner

_ODD = (np.nan, np.inf, -np.inf)
_EVERY = 5
"""Of so many neighbouring elements three are odd."""


def without_blanks(recording: Recording, runner: Runner) -> Recording:
    """``recording`` with NaN and infinities in every second usual feed, where an output is all zeros.

    Only where that output is no longer zeros then, and all outputs are finite.  Models with state keep their feeds.
    ``runner`` executes the artifact of the recording.
    """
    blank = _blank(recording)
    if not blank or any(spec.is_state or spec.value_range for spec in recording.artifact.inputs):
        return recording
    feeds, outputs = list(recording.feeds), list(recording.outputs)
    try:
        for place in range(1, recording.usual, 2):
            feeds[place] = {name: _odd(value, place) for name, value in feeds[place].items()}
            outputs[place] = runner.run(feeds[place])
    except (SourceError, ToolError, WorkerError):
        return recording
    found = replace(recording, feeds=tuple(feeds), outputs=tuple(outputs))
    helps = _blank(found) < blank and all(is_finite(each) for each in outputs[: recording.usual])
    return found if helps else recording


def _blank(recording: Recording) -> frozenset[str]:
    """The outputs that hold nothing but zeros for all usual feeds."""
    usual = recording.outputs[: recording.usual]
    names = [name for name, value in usual[0].items() if value.dtype.kind in "fiub"] if usual else []
    return frozenset(name for name in names if not any(bool(np.any(outputs[name])) for outputs in usual))


def _odd(value: Array, place: int) -> Array:
    if value.dtype.kind != "f":
        return value
    made = np.array(value)
    places = (np.arange(value.size).reshape(value.shape) + place) % _EVERY
    for number, odd in enumerate(_ODD):
        made[places == number] = odd
    return made
