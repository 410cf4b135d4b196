"""Which calibration method each tensor gets: the one that measures best, not the one that is believed in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from convertkit.profile import QuantProfile
from convertkit.quantization.histogram import Statistics
from convertkit.quantization.plan import Plan, Ranges
from convertkit.quantization.ranges import affine, noise, span
from convertkit.quantization.trial import Trials

CANDIDATES = ("minmax", "percentile", "mse", "entropy")


def choose_methods(
    plan: Plan,
    trials: Trials,
    groups: tuple[tuple[str, ...], ...],
    ranges: Ranges,
    budget: int,
) -> Plan:
    """``plan`` with the best method for all tensors, then better ones for single tensors.

    At most ``budget`` trials of single tensors are made, on those where the methods disagree most.
    """
    if ranges.profile.activation == "int16":
        return replace(plan, method="minmax")
    best, score = plan, trials.score(plan)
    for method in CANDIDATES:
        other = replace(plan, method=method)
        if method != plan.method and (level := trials.score(other)).beats(score):
            best, score = other, level
    for name, method in _suspects(best.method, groups, ranges.statistics, ranges.profile)[:budget]:
        changed = replace(best, methods={**best.methods, name: method})
        if (level := trials.score(changed)).beats(score):
            best, score = changed, level
    return best


def _suspects(
    method: str, groups: tuple[tuple[str, ...], ...], statistics: Mapping[str, Statistics], profile: QuantProfile
) -> list[tuple[str, str]]:
    """Tensors and the methods that differ most from ``method`` there, most different first."""
    found = []
    for names in groups:
        own = statistics.get(names[0])
        if own is None or own.samples == 0:
            continue
        ranges = {each: span(own, each, profile.activation, profile.symmetric) for each in CANDIDATES}
        base = noise(own.histogram, affine(ranges[method], profile.activation, profile.symmetric))
        for other in CANDIDATES:
            if ranges[other] == ranges[method]:
                continue
            width = ranges[method][1] - ranges[method][0]
            moved = abs(ranges[other][0] - ranges[method][0]) + abs(ranges[other][1] - ranges[method][1])
            gain = base / max(noise(own.histogram, affine(ranges[other], profile.activation, profile.symmetric)), 1e-30)
            found.append((gain * (1 + moved / max(width, 1e-30)), names[0], other))
    return [(name, other) for _, name, other in sorted(found, key=lambda item: (-item[0], item[1], item[2]))]
