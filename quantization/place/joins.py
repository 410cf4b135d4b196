"""Joins at a model's end whose parts are of unlike ranges stay float: boxes of 640 pixels beside scores of 1.

One scale for both leaves two or three values of the scores, and the loop does not see it: beside the boxes what an
output loses there is little.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import onnx_ir as ir

from convertkit.profile import QuantProfile
from convertkit.quantization.calibrate.histogram import Statistics
from convertkit.quantization.calibrate.ranges import affine, snr_db
from convertkit.quantization.graph.units import Unit

_MOVES = frozenset(
    {"Concat", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"}
)
_LEAST_DB = 20.0
"""Noise at a hundredth of the power of a part: less of it is lost."""


def uneven_joins(units: Sequence[Unit], statistics: Mapping[str, Statistics], profile: QuantProfile) -> frozenset[str]:
    """Names of such joins, and of the units that only move what they join on its way to the outputs."""
    at = {node: unit for unit in units for node in unit.nodes}
    found: set[str] = set()
    for unit in units:
        behind = _behind(unit, at) if unit.node.op_type == "Concat" else None
        if behind is not None and _loses(unit, statistics, profile):
            found.update((unit.name, *behind))
    return frozenset(found)


def _loses(unit: Unit, statistics: Mapping[str, Statistics], profile: QuantProfile) -> bool:
    """Whether the scale of all parts together drowns one of them."""
    parts = [statistics[str(value.name)] for value in unit.data.values() if str(value.name) in statistics]
    known = [part for part in parts if part.samples]
    if len(known) < 2:
        return False
    span = min(part.low for part in known), max(part.high for part in known)
    joint = affine(span, profile.activation, profile.symmetric)
    return any(snr_db(part.histogram, joint) < _LEAST_DB for part in known)


def _behind(unit: Unit, at: Mapping[ir.Node, Unit]) -> tuple[str, ...] | None:
    """The units between a join and the outputs; None where one of them computes, and may need it whatever it lost."""
    found: dict[str, None] = {}
    waiting = [*unit.outputs]
    while waiting:
        for reader in _readers(waiting.pop(), at):
            if reader is None or reader.node.domain or reader.node.op_type not in _MOVES:
                return None
            if reader.name not in found:
                found[reader.name] = None
                waiting += reader.outputs
    return tuple(found)


def _readers(value: ir.Value, at: Mapping[ir.Node, Unit]) -> Iterator[Unit | None]:
    return (at.get(use.node) for use in value.uses())
