"""What OpenVINO 2026.4 computes differently on values that generated inputs need not hold: refused, or put right."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import add_constant
from convertkit.targets.forms.writing import refusal

_NARROW = frozenset({ir.DataType.UINT8, ir.DataType.UINT16})
_THRESHOLD = 3
_RECURRENT = frozenset({"GRU", "LSTM", "RNN"})
_GATES = frozenset({"sigmoid", "tanh", "relu"})


def apply_rules(model: ir.Model) -> None:
    """Refuse what has no exact form, rewrite what has one, in place; ``Unsupported`` names the node."""
    for node in tuple(model.graph.all_nodes()):
        first = node.inputs[0] if node.inputs else None
        kind = None if first is None else first.dtype
        if node.op_type == "BitShift" and kind not in _NARROW:
            raise refusal(node, "OpenVINO shifts wide integers as float32, which holds 24 of their bits")
        if node.op_type == "Mod" and kind is not None and kind.is_floating_point():
            raise refusal(node, "OpenVINO's remainder of floats is not C's fmod where a number is infinite")
        if node.op_type in _RECURRENT and (lacking := _other_activations(node)):
            named = ", ".join(lacking)
            raise refusal(
                node, f"the activations of OpenVINO's recurrent cells are Sigmoid, Tanh and Relu, not {named}"
            )
        if node.op_type == "NonMaxSuppression":
            _suppress_above(node)


def _other_activations(node: ir.Node) -> list[str]:
    """Those of a recurrent layer that OpenVINO's cells lack; ONNX takes their names in any case."""
    stated = dict.fromkeys(node.attributes.get_strings("activations", ()))
    return [name for name in stated if name.lower() not in _GATES]


def _suppress_above(node: ir.Node) -> None:
    """ONNX keeps boxes whose overlap equals the threshold, OpenVINO does not: so the next larger float."""
    threshold = node.inputs[_THRESHOLD] if len(node.inputs) > _THRESHOLD else None
    if threshold is None or not isinstance(node.graph, ir.Graph):
        return
    if threshold.const_value is None:
        raise refusal(node, "its threshold is computed, and OpenVINO suppresses boxes that overlap by just as much")
    value = threshold.const_value.numpy().astype(np.float32)
    larger = np.nextafter(value, np.float32(np.inf))
    node.replace_input_with(_THRESHOLD, add_constant(node.graph, f"{threshold.name}_above", larger, separator=""))
