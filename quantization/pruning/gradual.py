"""A share of zeros reached by and by: a part of them, all layers fitted together, then the next part.

What stays has learnt to do without the weights that went before the next ones are chosen, and how much the outputs
depend on a layer is measured again each time.  Models that are too large to be fitted together are pruned at once.
Source of the idea: arXiv:1710.01878.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from convertkit.quantization.pruning.joint import JointFit
from convertkit.quantization.pruning.patterns import Pattern
from convertkit.quantization.pruning.sparsify import Found, Sparsifier

_LEAST_KEPT = 0.75
"""Of the weights that are left, at least this share stays each time: small parts leave more than long fits do."""
_FIRST = 0.45
"""Smaller shares than this cost so little that they go at once."""
_BETWEEN = 0.5
"""The share of its steps that a fit between two parts has."""


def on_the_way(share: float) -> tuple[float, ...]:
    """Rising shares of zeros, the last one ``share``: equal shares go of what is left."""
    kept = 1 - share
    turns = math.ceil(math.log(kept) / math.log(_LEAST_KEPT)) if share >= _FIRST else 1
    return (*(1 - kept ** (turn / turns) for turn in range(1, turns)), share)


def pruned_gradually(model: ir.Model, wanted: Pattern, fit: JointFit) -> tuple[ir.Model, Sequence[Found]] | None:
    """A pruned copy of ``model``, and what became of its layers; the last part is not yet fitted together.

    None where that would be pruning at once: N of M neighbours, small shares, and what cannot be fitted.
    """
    shares = on_the_way(wanted.share)
    if wanted.of or len(shares) == 1 or not fit.steps:
        return None
    found: Sequence[Found] = ()
    for turn, share in enumerate(shares):
        if turn:
            fit.run(model, share=_BETWEEN)
        worker = Sparsifier(model, fit.feeds, fit.state, fit.seed, fit.progress)
        model, found = worker.pruned(Pattern(share), worker.curves())
    return model, found
