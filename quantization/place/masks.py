"""Arithmetic with numbers that stand for infinity, as attention masks are written: it stays float.

One range for scores and for -1e9 would keep nothing of the scores; and where calibration never masks, a range
without it would undo the mask.  So whatever reads or writes such numbers is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.quantization.calibrate.histogram import Statistics
from convertkit.quantization.graph.units import Unit, constant, is_constant, is_float, quantizable_values

NOTHING: Mapping[str, Statistics] = MappingProxyType({})
FAR = 2.0**20
"""Beyond this a number is a mark, not a quantity."""

_MARKS = frozenset({"Add", "Sub", "Mul", "Where"})
"""Operators that write masks; a limit or a padding of infinity leaves no trace in what it limits."""
_CARRIES = frozenset({"Trilu", "Expand", "Tile", "Cast", "CastLike", "Identity", "Unsqueeze", "Squeeze", "Reshape"})
_CARRIES |= {"Flatten", "Transpose", "Slice", "Split", "Concat", "Gather", "GatherElements", "GatherND"}
"""Operators that hand numbers on, whether or not a target has integers for them."""


def measurable(units: tuple[Unit, ...]) -> list[str]:
    """Names of the values whose ranges some placement could need; behind a mask there may be infinities."""
    marking = marking_units(units)
    plain = tuple(unit for unit in units if unit.name not in marking)
    return [str(value.name) for value in quantizable_values(plain)]


def marking_units(units: tuple[Unit, ...], statistics: Mapping[str, Statistics] = NOTHING) -> frozenset[str]:
    """Names of the units that touch values which reach beyond :data:`FAR`, measured or by a constant."""
    far: set[ir.Value] = set()
    found: set[str] = set()
    for unit in units:
        reads = far.intersection(unit.node.inputs)
        writes = {value for value in unit.outputs if _is_far(statistics.get(str(value.name)))}
        moves = unit.node.op_type in _CARRIES or (unit.rule is not None and unit.rule.same_scale)
        if _adds_marks(unit.node) or (reads and (moves or unit.node.op_type in _MARKS)):
            writes.update(unit.outputs)
        far |= writes
        if reads or writes or any(_is_far(statistics.get(str(value.name))) for value in unit.data.values()):
            found.add(unit.name)
    return frozenset(found)


def _adds_marks(node: ir.Node) -> bool:
    if node.op_type == "ConstantOfShape":
        filling = node.attributes.get("value")
        return filling is not None and _is_mark(filling.as_tensor().numpy())
    if node.op_type not in _MARKS | _CARRIES:
        return False
    fixed = [value for value in node.inputs if value is not None and is_constant(value) and is_float(value)]
    return any(_is_mark(constant(value)) for value in fixed)


def _is_mark(numbers: Array) -> bool:
    return bool(np.abs(numbers.astype(np.float64)).max(initial=0.0) > FAR)


def _is_far(statistics: Statistics | None) -> bool:
    return statistics is not None and statistics.samples > 0 and max(-statistics.low, statistics.high) > FAR
