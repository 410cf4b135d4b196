"""Who asks for a size asks behind what keeps it, so that a convolution has one reader and can absorb what follows.

before:  x → Conv → h → BatchNormalization → Relu → y,   Shape(h)
after:   x → Conv → h → BatchNormalization → Relu → y,   Shape(y)

Exporters read the size of whatever tensor the program named, often between a convolution and its normalisation.
"""

from __future__ import annotations

import onnx_ir as ir

_FUSED_BEHIND = frozenset({"BatchNormalization", "Clip", "HardSwish", "LeakyRelu", "Relu"})


def ask_behind(model: ir.Model) -> None:
    """Let every Shape read the last value of that shape before it branches, in place."""
    for graph in (model.graph, *model.graph.subgraphs()):
        moved = [node for node in tuple(graph) if node.op_type == "Shape" and not node.domain and _move(node)]
        if moved:
            graph.sort()


def _move(node: ir.Node) -> bool:
    value = node.inputs[0]
    last = value
    while last is not None and (behind := _same_size(last)) is not None:
        last = behind
    if last is None or last is value:
        return False
    node.replace_input_with(0, last)
    return True


def _same_size(value: ir.Value) -> ir.Value | None:
    """The output of the only node that computes on ``value``, where it is one that others absorb."""
    readers = [use.node for use in value.uses() if use.node.op_type != "Shape"]
    if len(readers) != 1 or value.is_graph_output():
        return None
    (reader,) = readers
    first = reader.inputs[0] is value and reader.op_type in _FUSED_BEHIND and not reader.domain
    # A bound that depends on the size itself would have to wait for its own result.
    fixed = all(other is None or other.const_value is not None for other in reader.inputs[1:])
    return reader.outputs[0] if first and fixed and reader.graph is value.graph else None
