"""A quantized value in front of every Relu: without it, QNN does not see that the operator before it computes integers.

before:  x → Conv → Relu → QuantizeLinear → y
after:   x → Conv → QuantizeLinear → DequantizeLinear → Relu → QuantizeLinear → y

Exact: below 0 both give the zero point, and above 0 what is rounded once stays as it is.  Models that come quantized
have this form, TensorRT's among them.
"""

from __future__ import annotations

import onnx_ir as ir

_QUANTIZE, _DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"


def place_pairs(model: ir.Model) -> int:
    """Write the pairs, in place; how many there were."""
    found = [node for node in model.graph if node.op_type == "Relu" and _between(node) is not None]
    for node in found:
        _place(model.graph, node)
    return len(found)


def _between(node: ir.Node) -> ir.Node | None:
    """The QuantizeLinear behind a Relu that reads what is not quantized."""
    readers = [reader for reader, _ in node.outputs[0].uses()]
    data = node.inputs[0]
    producer = None if data is None else data.producer()
    if len(readers) != 1 or readers[0].op_type != _QUANTIZE or node.outputs[0].is_graph_output():
        return None
    return None if producer is None or producer.op_type == _DEQUANTIZE else readers[0]


def _place(graph: ir.Graph, node: ir.Node) -> None:
    data, behind = node.inputs[0], _between(node)
    assert data is not None
    assert behind is not None
    parameters, value = behind.inputs[1:], data
    for kind in (_QUANTIZE, _DEQUANTIZE):
        made = ir.Node("", kind, [value, *parameters], num_outputs=1, name=f"{node.name}_{kind}")
        value = made.outputs[0]
        value.name = f"{data.name}_{kind}"
        value.type, value.shape = (behind.outputs[0] if kind == _QUANTIZE else data).type, data.shape
        graph.insert_before(node, made)
    node.replace_input_with(0, value)
