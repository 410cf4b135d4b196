"""Where numbers are divided by what they add up to, or go through a logarithm: statistics of norms, softmax, levels.

There a sample's own level decides and not the level that calibration saw: of a mean of squares, integers of one scale
keep nothing for a sample that is ten times quieter than another.
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from convertkit.quantization.graph.units import Unit, is_constant

_CURVED = frozenset({"Sqrt", "Reciprocal", "Log", "Exp", "Pow", "Softmax", "LogSoftmax", "LogSumExp", "Div"})
_NORMS = frozenset({"LayerNormalization", "InstanceNormalization", "GroupNormalization", "RMSNormalization"})
_PASSES = frozenset({
    "Add", "Sub", "Mul", "Abs", "Max", "Min", "Relu", "Clip", "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin",
    "GlobalAveragePool", "Reshape", "Squeeze", "Unsqueeze", "Expand", "Transpose", "Identity",
})  # fmt: skip
"""What statistics are made of, and what carries them; products of matrices end a neighbourhood."""


def statistics_units(units: Iterable[Unit]) -> frozenset[str]:
    """Names of the units in front of and behind such operators, up to the next product of matrices."""
    at = {node: unit for unit in units for node in unit.nodes}
    found: dict[Unit, None] = {}
    waiting = [near for node in at if _is_curved(node) for near in _near(node)]
    while waiting:
        unit = at.get(waiting.pop())
        if unit is None or unit in found or unit.node.op_type not in _PASSES or unit.node.domain:
            continue
        found[unit] = None
        waiting += [near for node in unit.nodes for near in _near(node)]
    return frozenset(unit.name for unit in found)


def _is_curved(node: ir.Node) -> bool:
    if node.domain or node.op_type not in _CURVED | _NORMS:
        return False
    divisor = node.inputs[1] if node.op_type == "Div" else None
    return divisor is None or not is_constant(divisor)


def _near(node: ir.Node) -> list[ir.Node]:
    makers = [value.producer() for value in node.inputs if value is not None]
    readers = [use.node for value in node.outputs for use in value.uses()]
    return [near for near in (*makers, *readers) if near is not None]
