"""Feeds on which the noise of a lossy step says nothing, because roundings alone already make as much.

Generated noise may drive a deep network of random weights into amplifying every rounding; integer weights then cost it
all of its signal, on inputs that it was never made for.  The float64 twin of the model tells which feeds those are.
Samples of the user's are never left out.
"""

from __future__ import annotations

import numpy as np

from convertkit.parity.truth import AskTruth, is_ill_conditioned
from convertkit.parity.values import Recording
from convertkit.stage import FLOAT32


def well_conditioned(recording: Recording, truth: AskTruth) -> tuple[int, ...]:
    """Places of the usual feeds on which roundings move no output by more than a float32 step may differ.

    Where there is none, those of edge inputs of which that holds, and whose outputs are not all the same.
    """
    usual = tuple(place for place in range(recording.usual) if _is_well(recording, place, truth))
    if usual:
        return usual
    edges = range(recording.usual, len(recording.feeds))
    return tuple(place for place in edges if _varies(recording, place) and _is_well(recording, place, truth))


def _is_well(recording: Recording, place: int, truth: AskTruth) -> bool:
    known = truth(recording.fed(place))
    return known is None or not is_ill_conditioned(known, FLOAT32.relative or 0.0)


def _varies(recording: Recording, place: int) -> bool:
    return any(value.size > 1 and np.ptp(value) > 0 for value in recording.outputs[place].values())
