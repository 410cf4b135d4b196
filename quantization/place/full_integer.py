"""``--full-integer``: every operator that makes floats computes in integers, or the export is refused."""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

from convertkit.errors import Unsupported
from convertkit.onnx.origin import location
from convertkit.profile import QuantProfile
from convertkit.quantization.graph.units import Unit


def refuse_float(
    units: Collection[Unit], integer: Collection[Unit], marking: Collection[str], profile: QuantProfile
) -> None:
    """Raise ``Unsupported`` for the first unit that stays float; ``marking`` are those of stand-ins for infinity."""
    for unit in units:
        if unit in integer or not any(value.dtype == ir.DataType.FLOAT for value in unit.node.outputs):
            continue
        reason = f"{profile.name} has no integer kernel for it"
        if unit.rule is not None and unit.name in marking:
            reason = "it computes with numbers that stand for infinity, which no integers express"
        raise Unsupported(
            reason,
            subject=f"{unit.name} ({unit.node.op_type})",
            location=location(unit.node),
            ways_out=("--int8 without --full-integer",),
        )
