"""Whether more calibration samples would help: how much better a model answers those that it was fitted to.

Weights that are fitted to few samples answer these and lose on new ones.  The gap between both is what more samples
would close; where there is none, the model has too few weights for any number of samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.data.held_out import spread
from convertkit.quantization.search.quality import CLEAR_DB, Quality
from convertkit.quantization.search.reference import Reference
from convertkit.stage import Feed, FeedSource

_GAP_DB = 3.0
"""Errors on new samples have twice the power of those on fitted ones."""
_APART_DB = 0.05
"""By which levels before and behind a softmax differ."""


def is_seen(quality: Quality | None, fitted: Sequence[Feed] | FeedSource | None) -> bool:
    """Whether samples were too few to hold any out, so that those that were fitted to judge, too."""
    return quality is not None and fitted is not None and quality.samples == len(fitted)


def gap(
    original: ir.Model, made: ir.Model, fitted: Sequence[Feed], held_out: Quality, state: Mapping[str, Array]
) -> str | None:
    """What fitted and held-out samples keep, in words; None where new ones are answered about as well, or well enough.

    ``fitted`` are the samples that weights of ``made`` were fitted to, of which as many are asked as were held out.
    """
    if is_seen(held_out, fitted):
        return f"of {len(fitted)} none is held out, so that nothing tells what new ones keep"
    if held_out.before_db >= CLEAR_DB:
        return None
    feeds = [fitted[place] for place in spread(len(fitted), held_out.samples)]
    seen = Reference(original.clone(), feeds, state).quality(made.clone())
    if held_out.before_db >= seen.before_db - _GAP_DB:
        return None
    return f"those that weights were fitted to keep {_told(seen)}, held-out ones {_told(held_out)}"


def notes(found: str | None) -> list[str]:
    """What a report says of a gap."""
    return [] if found is None else [f"more calibration samples would help: {found}"]


def ways_out(found: str | None) -> list[str]:
    """What a refusal advises where there is a gap."""
    return [] if found is None else [f"--calib with more samples: {found}"]


def _told(quality: Quality) -> str:
    agreement = "" if quality.agreement is None else f" and {100 * quality.agreement:.1f} % agreement"
    where = " before the softmax or sigmoid" if abs(quality.before_db - quality.snr_db) > _APART_DB else ""
    return f"{quality.before_db:.1f} dB{where}{agreement}"
