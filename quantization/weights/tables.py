"""Embedding tables as integers: looked up as integers, and made real behind the look-up.

A table is read row by row, so no runtime has to make the whole of it real.  Every row has a scale, which is looked up
beside it: DequantizeLinear knows scales along an axis only where they are constant.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import add_constant
from convertkit.quantization.graph.units import constant, is_constant, is_float
from convertkit.quantization.weights.integers import best_scales, quantize_weight

LEAST_ENTRIES = 1024
"""A smaller table costs more in scales and operators than it saves."""
_LARGE_BYTES = 1 << 20
"""From here on a table is most of a file, and a quarter of it is worth a slower look-up."""
_LIMITS = (-127, 127)


def quantize_tables(graph: ir.Graph, each_ns: float = 0.0, allowed_ns: float = 0.0) -> tuple[str, ...]:
    """``Gather(table)`` as ``DequantizeLinear(Gather(int8 table)) * Gather(scales)``, in place; the nodes' names.

    Where a look-up costs ``each_ns`` more, and all of them together more than ``allowed_ns``, small tables stay float.
    """
    found = []
    for table in tuple(graph.initializers.values()):
        readers = [use.node for use in table.uses()]
        if readers and all(_looks_up(node, table, graph) for node in readers):
            found.append((table, readers))
    if each_ns * sum(len(readers) for _, readers in found) > allowed_ns:
        found = [(table, readers) for table, readers in found if constant(table).nbytes >= _LARGE_BYTES]
    for table, readers in found:
        _quantize(graph, table, readers)
    return tuple(str(node.name) for _, readers in found for node in readers)


def _looks_up(node: ir.Node, table: ir.Value, graph: ir.Graph) -> bool:
    if node.op_type != "Gather" or node.domain or node.graph is not graph or node.inputs[0] is not table:
        return False
    if not is_constant(table) or not is_float(table) or node.attributes.get_int("axis", 0) != 0:
        return False
    array = constant(table)
    return bool(array.ndim == 2 and array.size >= LEAST_ENTRIES and not node.outputs[0].is_graph_output())


def _quantize(graph: ir.Graph, table: ir.Value, readers: list[ir.Node]) -> None:
    array, name = constant(table), str(table.name)
    weight = quantize_weight(array, 0, _LIMITS, best_scales(array, 0, _LIMITS))
    integers = add_constant(graph, f"{name}_quantized", weight.integers)
    scales = add_constant(graph, f"{name}_scales", weight.scales.reshape(-1, 1))
    one = add_constant(graph, f"{name}_scale", np.array(1, np.float32))
    for node in dict.fromkeys(readers):
        old, indices = node.outputs[0], node.inputs[1]
        axis = ir.AttrInt64("axis", 0)
        row = _made("Gather", [integers, indices], [axis], f"{old.name}_row", ir.DataType.INT8)
        whole = _made("DequantizeLinear", [row.outputs[0], one], [], f"{old.name}_row_whole", ir.DataType.FLOAT)
        scale = _made("Gather", [scales, indices], [axis], f"{old.name}_row_scale", ir.DataType.FLOAT)
        last = _made("Mul", [whole.outputs[0], scale.outputs[0]], [], str(node.name), ir.DataType.FLOAT)
        row.outputs[0].shape = whole.outputs[0].shape = last.outputs[0].shape = old.shape
        graph.insert_before(node, (row, whole, scale, last))
        ir.convenience.replace_all_uses_with(old, last.outputs[0])
        last.outputs[0].name, kept = None, old.name
        graph.remove(node, safe=True)
        last.outputs[0].name = kept


def _made(op: str, inputs: list[ir.Value | None], attributes: list[ir.Attr], name: str, dtype: ir.DataType) -> ir.Node:
    node = ir.Node("", op, inputs, attributes, num_outputs=1, name=name)
    node.outputs[0].name, node.outputs[0].type = name, ir.TensorType(dtype)
    return node
