"""Tables of floats that a Gather looks up, for ``--full-integer``: their rows become integers like any value.

before:  Gather (table, places)
while the model is quantized:   Gather (Identity (table), places): the range of the value is that of all rows
after:   Gather (DequantizeLinear (int8 table), places), and the same scale behind it
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import add_constant, inserted
from convertkit.profile import QuantProfile
from convertkit.quantization.graph.units import constant, is_constant, is_float

_TABLE = "convertkit.table"
"""Key in the ``metadata_props`` of an Identity that stands for a table."""


def tables_as_values(model: ir.Model, profile: QuantProfile) -> None:
    """Put an Identity behind every such table, in place, where ``profile`` looks up integers."""
    if profile.rule(("Gather",)) is None or not profile.integer_rows:
        return
    for node in tuple(model.graph):
        table = node.inputs[0] if node.op_type == "Gather" and not node.domain else None
        if table is not None and is_constant(table) and is_float(table):
            made = inserted(node, "Identity", [table], table)
            made.name = made.outputs[0].name = f"{node.outputs[0].name}/table"
            made.metadata_props[_TABLE] = ""
            node.replace_input_with(0, made.outputs[0])


def is_table(node: ir.Node) -> bool:
    """Whether a node stands for a table; an Identity of a constant that the model had itself does not."""
    return node.op_type == "Identity" and _TABLE in node.metadata_props


def store_tables(model: ir.Model) -> None:
    """Make every table that was quantized integers, and every other one a table again, in place."""
    for node in [each for each in model.graph if is_table(each)]:
        table, value = node.inputs[0], node.outputs[0]
        assert table is not None
        for use in tuple(value.uses()):
            if use.node.op_type == "QuantizeLinear":
                _store(model.graph, table, use.node)
            else:
                use.node.replace_input_with(use.idx, table)
        model.graph.remove(node, safe=True)


def _store(graph: ir.Graph, table: ir.Value, quantize: ir.Node) -> None:
    """What a QuantizeLinear makes of the table; source: ONNX operators, QuantizeLinear-10."""
    scale, point = (constant(value) for value in quantize.inputs[1:3] if value is not None)
    kind = np.iinfo(point.dtype)
    steps = np.clip(np.rint(constant(table) / scale) + point.astype(np.float32), kind.min, kind.max)
    integers = add_constant(graph, f"{table.name}_quantized", steps.astype(point.dtype))
    quantize.outputs[0].replace_all_uses_with(integers)
    graph.remove(quantize, safe=True)
