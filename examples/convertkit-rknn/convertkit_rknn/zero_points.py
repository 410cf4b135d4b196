"""Zero points other than 0, with which RKNN-Toolkit2 keeps the scales that the graph has.

before:  x → QuantizeLinear(scale, 0) → DequantizeLinear(scale, 0) → y
after:   x → QuantizeLinear(scale, 1) → DequantizeLinear(scale, 1) → y

Where a zero point is 0, the toolkit takes the value for a symmetric one of the range that int8 has, -128 to 127 times
the scale, and maps 128 steps to 127: every step becomes 128/127 of itself.  Found in version 2.5.0 by running a single
convolution.  With 1 the same steps stand for the same numbers; only the highest of the 256 is lost.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir


def move_zero_points(model: ir.Model) -> int:
    """Write 1 where values are quantized with a zero point of 0, in place; how many there were."""
    found = [node for node in model.graph if node.op_type == "QuantizeLinear" and _is_zero(node)]
    moved = 0
    for node in found:
        readers = [reader for reader, _ in node.outputs[0].uses()]
        if all(reader.op_type == "DequantizeLinear" for reader in readers) and not node.outputs[0].is_graph_output():
            _move(model.graph, (node, *readers))
            moved += 1
    return moved


def _is_zero(node: ir.Node) -> bool:
    """Whether an int8 value of one scale has the zero point 0."""
    zero = node.inputs[2] if len(node.inputs) > 2 else None
    known = None if zero is None else zero.const_value
    return known is not None and known.dtype == ir.DataType.INT8 and known.size == 1 and not known.numpy().any()


def _move(graph: ir.Graph, nodes: Sequence[ir.Node]) -> None:
    old = nodes[0].inputs[2]
    assert old is not None
    assert old.const_value is not None
    name = f"{nodes[0].name}_moved_zero_point"
    tensor = ir.tensor(np.ones_like(old.const_value.numpy()), name=name)
    value = ir.Value(name=name, shape=old.shape, type=ir.TensorType(tensor.dtype), const_value=tensor)
    graph.register_initializer(value)
    for node in nodes:
        node.replace_input_with(2, value)
