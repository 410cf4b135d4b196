"""``--full-integer``: every operator that makes floats computes in integers, or the export is refused."""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

from convertkit.errors import Unsupported
from convertkit.onnx.origin import location
from convertkit.profile import STAYS_FLOAT, QuantProfile
from convertkit.quantization.graph.kinds import node_kinds
from convertkit.quantization.graph.units import Unit, is_constant, is_float
from convertkit.quantization.prepare.look_ups import is_table

CLAMPS = frozenset({"Relu", "Clip"})
"""What computes on the sums of the operator in front of it."""
_CONVERSIONS = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"})


def refuse_float(
    units: Collection[Unit], integer: Collection[Unit], marking: Collection[str], profile: QuantProfile
) -> None:
    """Raise ``Unsupported`` for the first unit that stays float; ``marking`` are those of stand-ins for infinity."""
    for unit in units:
        if unit in integer or not any(value.dtype == ir.DataType.FLOAT for value in unit.node.outputs):
            continue
        if is_table(unit.node):
            continue
        reason = f"{profile.name} has no integer kernel for it"
        if unit.rule is not None and unit.name in marking:
            reason = "it computes with numbers that stand for infinity, which no integers express"
        raise _refusal(unit.node, reason)


def refuse_left(graph: ir.Graph, profile: QuantProfile) -> None:
    """The same for the first node of a model that came quantized, and was completed, which computes in float."""
    integer = {value for node in graph if node.op_type == "DequantizeLinear" for value in node.outputs}
    sums = set[ir.Value]()
    for node in graph:
        if node.op_type in _CONVERSIONS or not any(map(is_float, node.outputs)):
            continue
        given = [value for value in node.inputs if value is not None and is_float(value) and not is_constant(value)]
        if node.domain or STAYS_FLOAT in node.metadata_props or profile.rule(node_kinds(node)) is None:
            raise _refusal(node, f"{profile.name} has no integer kernel for it")
        allowed = sums if node.op_type in CLAMPS else ()
        floats = [value for value in given if value not in integer and value not in allowed]
        if floats:
            raise _refusal(node, f"it reads {floats[0].name}, which has no scale of integers")
        sums.update(node.outputs)


def _refusal(node: ir.Node, reason: str) -> Unsupported:
    ways = ("--int8 without --full-integer",)
    return Unsupported(reason, subject=f"{node.name} ({node.op_type})", location=location(node), ways_out=ways)
