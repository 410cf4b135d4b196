"""Operators that compute the numbers of a quantized graph in float kernels, where those are the faster ones.

Between integers a convolution has integers to read, and its result becomes integers again.  With integer weights and
bias at scales that are free of ties (see ``ties``) its float kernel gives the same integers as an integer one would, so
which of the two a target runs is a matter of speed alone, and every runtime still agrees with every other.
"""

from __future__ import annotations

from collections.abc import Iterable

from convertkit.profile import QuantProfile
from convertkit.quantization.units import Unit


def can_be_exact(unit: Unit, profile: QuantProfile) -> bool:
    """Whether a float kernel for the unit can compute what an integer one would."""
    weighted = unit.rule is not None and unit.weight is not None and unit.kinds[-1] not in profile.dynamic
    return profile.keeps_float and profile.tie_free and weighted


def exact_in_float(units: Iterable[Unit], integer: frozenset[Unit], profile: QuantProfile) -> frozenset[Unit]:
    """Float units that read and write nothing but what is or can be integers: those of their like, and inputs.

    With them come those that only move data, which are as fast in integers.
    """
    others = [unit for unit in units if unit not in integer]
    found = {unit for unit in others if can_be_exact(unit, profile) or _is_move(unit)}
    while True:
        among = integer | found
        made = {value for unit in among for value in unit.outputs}
        nodes = {node for unit in among for node in unit.nodes}
        outside = {
            unit
            for unit in found
            if not all(value in made or value.is_graph_input() for value in unit.data.values())
            or not all(value.uses() and not value.is_graph_output() for value in unit.outputs)
            or not all(use.node in nodes for value in unit.outputs for use in value.uses())
        }
        if not outside:
            return frozenset(found) if any(unit.weight is not None for unit in found) else frozenset()
        found -= outside


def _is_move(unit: Unit) -> bool:
    return unit.rule is not None and unit.rule.same_scale and len(unit.data) == 1 and not unit.constants
