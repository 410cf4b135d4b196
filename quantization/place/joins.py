"""Joins at a model's end whose parts are of unlike ranges stay float: boxes of 640 pixels beside scores of 1.

One scale for both leaves two or three values of the scores, and the loop does not see it: beside the boxes what an
output loses there is little.  Where a flag insists on integers, a note tells what is lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from convertkit.profile import QuantProfile
from convertkit.quantization.calibrate.histogram import Statistics
from convertkit.quantization.calibrate.ranges import Range, affine, snr_db
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
        if behind is not None and _drowned(unit, statistics, profile) is not None:
            found.update((unit.name, *behind))
    return frozenset(found)


def told_of_joins(
    units: Sequence[Unit], statistics: Mapping[str, Statistics], profile: QuantProfile, flags: str
) -> list[str]:
    """A note of the worst of such joins, which become integers because of ``flags``; empty where there is none."""
    names = uneven_joins(units, statistics, profile)
    joins = [unit for unit in units if unit.name in names and unit.node.op_type == "Concat"]
    found = [(unit, each) for unit in joins if (each := _drowned(unit, statistics, profile)) is not None]
    return [_told(found, flags)] if found else []


@dataclass(frozen=True, slots=True)
class _Drowned:
    """A part of a join, its SNR in dB and its range, and that of all parts with its scale."""

    name: str
    level: float
    own: Range
    joint: Range
    scale: float


def _told(found: Sequence[tuple[Unit, _Drowned]], flags: str) -> str:
    unit, drowned = min(found, key=lambda each: each[1].level)
    (low, high), (least, most) = drowned.own, drowned.joint
    others = f"; so it is with {len(found) - 1} more" if len(found) > 1 else ""
    return (
        f"{unit.name} (Concat) has one scale for all that it joins, {least:.3g} to {most:.3g}: {drowned.name}, "
        f"{low:.3g} to {high:.3g}, is rounded to steps of about {drowned.scale:.2g}{others}; make the parts outputs of "
        f"their own, or leave {flags} out"
    )


def _drowned(unit: Unit, statistics: Mapping[str, Statistics], profile: QuantProfile) -> _Drowned | None:
    """The part that the scale of all parts together leaves the least, where that is too little."""
    parts = {str(value.name): statistics.get(str(value.name)) for value in unit.data.values()}
    known = {name: part for name, part in parts.items() if part is not None and part.samples}
    if len(known) < 2:
        return None
    span = min(part.low for part in known.values()), max(part.high for part in known.values())
    joint = affine(span, profile.activation, profile.symmetric)
    level, name = min((snr_db(part.histogram, joint), name) for name, part in known.items())
    return _Drowned(name, level, (known[name].low, known[name].high), span, joint.scale) if level < _LEAST_DB else None


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
