"""A float operator between Dequantize and Quantize, seen as integers, and its rewiring to them."""

from __future__ import annotations

import onnx_ir as ir

from convertkit.onnx.edit import bypass
from convertkit.targets.forms.edits import can_drop, typed
from convertkit.targets.tflite.annotations import OWN, quantization_of, set_quantization
from convertkit.targets.tflite.tensor import QuantParams

_INTEGER_INPUTS = (ir.DataType.INT8, ir.DataType.INT16)


class QdqGroup:
    """One float operator between Dequantize and Quantize, seen as integers."""

    def __init__(self, node: ir.Node, inputs: list[ir.Value | None], quantizers: list[ir.Node]) -> None:
        self.node = node
        self.inputs = inputs
        self.quantizers = quantizers

    @property
    def result(self) -> QuantParams:
        """Parameters of the first output."""
        params = quantization_of(self.quantizers[0].outputs[0])
        assert params is not None
        return params

    @property
    def kind(self) -> ir.DataType | None:
        """Element type of the first output."""
        return self.quantizers[0].outputs[0].dtype

    def params(self, place: int) -> QuantParams | None:
        """Parameters of an input, None where it is not an integer."""
        value = self.inputs[place] if place < len(self.inputs) else None
        return None if value is None else quantization_of(value)


def qdq_group(node: ir.Node) -> QdqGroup | None:
    """``node`` with its Dequantize inputs looked through, where every output goes into one Quantize."""
    inputs: list[ir.Value | None] = []
    for value in node.inputs:
        producer = None if value is None else value.producer()
        if producer is not None and producer.domain == OWN and producer.op_type == "Dequantize":
            inputs.append(producer.inputs[0])
        else:
            inputs.append(value)
    quantizers = []
    for value in node.outputs:
        if not value.uses() and not value.is_graph_output():
            continue
        found = _quantizer(value)
        if found is None:
            return None
        quantizers.append(found)
    data = inputs[1:] if node.op_type == "Where" else inputs  # the condition is of flags
    first = data[0] if data else None
    if not quantizers or first is None or quantization_of(first) is None or first.dtype not in _INTEGER_INPUTS:
        return None
    if any(found.outputs[0].dtype != first.dtype for found in quantizers):
        return None
    return QdqGroup(node, inputs, quantizers)


def _quantizer(value: ir.Value) -> ir.Node | None:
    """The Quantize behind ``value`` where all its users are the same one."""
    users = [use.node for use in value.uses()]
    if value.is_graph_output() or not users:
        return None
    if any(user.domain != OWN or user.op_type != "Quantize" for user in users):
        return None
    params = {quantization_of(user.outputs[0]) for user in users}
    kinds = {user.outputs[0].dtype for user in users}
    return users[0] if len(params) == 1 and len(kinds) == 1 and None not in params else None


def fold_group(qdq: QdqGroup) -> None:
    """Wire the operator to integers; a Quantize that cannot go (its output is an output twice) changes nothing."""
    node = qdq.node
    for place, value in enumerate(qdq.inputs):
        node.replace_input_with(place, value)
    for value in node.outputs:
        users = [use.node for use in value.uses()]
        if not users:
            continue
        first = users[0].outputs[0]
        params, kind, name = quantization_of(first), first.dtype, first.name
        assert params is not None
        set_quantization(value, params)
        typed(value, value.shape, kind)
        for user in users:
            if can_drop(user, value):
                bypass(user, value)
        if not value.is_graph_output():
            value.name = name
