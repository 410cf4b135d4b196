"""Operators that compute the numbers of a quantized graph in float kernels, where those are the faster ones.

Between integers a convolution has integers to read, and its result becomes integers again.  With integer weights and
bias at scales that are free of ties (see ``ties``) its float kernel gives the same integers as an integer one would, so
which of the two a target runs is a matter of speed alone, and every runtime still agrees with every other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import onnx_ir as ir

from convertkit.profile import QuantProfile
from convertkit.quantization.graph.units import Unit


def can_be_exact(unit: Unit, profile: QuantProfile) -> bool:
    """Whether a float kernel for the unit can compute what an integer one would."""
    weighted = unit.rule is not None and unit.weight is not None and unit.kinds[-1] not in profile.dynamic
    return profile.keeps_float and profile.tie_free and weighted


def exact_in_float(units: Iterable[Unit], integer: frozenset[Unit], profile: QuantProfile) -> frozenset[Unit]:
    """Float units that read and write nothing but what is or can be integers: those of their like, and inputs.

    With a convolution or a dense layer come all that have a rule and are joined to it in float.
    """
    if not (profile.keeps_float and profile.tie_free):
        return frozenset()
    found = {unit for unit in units if unit not in integer and _has_parameters(unit, profile)}
    while True:
        among = integer | found
        made = {value for unit in among for value in unit.outputs}
        nodes = {node for unit in among for node in unit.nodes}
        outside = {unit for unit in found if not _is_inside(unit, made, nodes)}
        if not outside:
            return _joined_to_weights(frozenset(found), profile)
        found -= outside


def _has_parameters(unit: Unit, profile: QuantProfile) -> bool:
    """Whether the profile says how the unit's tensors are quantized."""
    return unit.rule is not None and bool(unit.data) and unit.kinds[-1] not in profile.dynamic


def _is_inside(unit: Unit, made: Collection[ir.Value], nodes: Collection[ir.Node]) -> bool:
    known = all(value in made or value.is_graph_input() for value in unit.data.values())
    read = all(value.uses() and not value.is_graph_output() for value in unit.outputs)
    return known and read and all(use.node in nodes for value in unit.outputs for use in value.uses())


def _joined_to_weights(found: frozenset[Unit], profile: QuantProfile) -> frozenset[Unit]:
    """Those that a chain of float units joins to one with a weight."""
    kept = {unit for unit in found if can_be_exact(unit, profile)}
    while True:
        touched = {value for unit in kept for value in (*unit.data.values(), *unit.outputs)}
        more = {unit for unit in found - kept if touched & {*unit.data.values(), *unit.outputs}}
        if not more:
            return frozenset(kept)
        kept |= more
