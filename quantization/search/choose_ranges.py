"""Which calibration method each tensor gets: the one that measures best, not the one that is believed in."""

from __future__ import annotations

from dataclasses import replace

from convertkit.quantization.calibrate.ranges import WEIGHTED_MSE
from convertkit.quantization.search.plan import Plan, Ranges
from convertkit.quantization.search.trial import Trials

CANDIDATES = ("minmax", "percentile-99.99", "percentile", "mse", "moving-average", WEIGHTED_MSE)
"""The widest first: a narrower one has to win by more than chance, because data may be louder than calibration's."""


def choose_methods(
    plan: Plan,
    trials: Trials,
    wide: Trials,
    groups: tuple[tuple[str, ...], ...],
    ranges: Ranges,
    budget: int,
) -> Plan:
    """The plan with the best method for all tensors, then better ones for single tensors.

    ``wide`` measures on more samples than ``trials``: one method for all tensors stands or falls with
    rare, loud samples, of which a few held-out ones tell nothing.  At most ``budget`` trials of single
    tensors are made, on those where the methods disagree most.
    """
    if not groups:
        return plan
    if ranges.profile.activation == "int16":
        return replace(plan, method="minmax")
    whole = [plan if method == plan.method else replace(plan, method=method) for method in CANDIDATES]
    best = whole[0]
    for other in whole[1:]:
        best = other if wide.score(other).beats(wide.score(best)) else best
    score = trials.score(best)
    for name, method in _suspects(best.method, groups, ranges)[:budget]:
        changed = replace(best, methods={**best.methods, name: method})
        if (level := trials.score(changed)).beats(score):
            best, score = changed, level
    return best


def _suspects(method: str, groups: tuple[tuple[str, ...], ...], ranges: Ranges) -> list[tuple[str, str]]:
    """Tensors and the methods that differ most from ``method`` there, most different first."""
    found = []
    for names in groups:
        own = ranges.known(names, method)
        if own is None or own[1] <= own[0]:
            continue
        for other in CANDIDATES:
            span = ranges.known(names, other)
            if span is not None and span != own:
                moved = (abs(span[0] - own[0]) + abs(span[1] - own[1])) / (own[1] - own[0])
                found.append((moved, names[0], other))
    return [(name, other) for _, name, other in sorted(found, key=lambda item: (-item[0], item[1], item[2]))]
