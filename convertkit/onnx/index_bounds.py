"""How large the integers of an input may be: as many as the tables have rows that they look up.

Generated inputs need it.  Token types of 3 end a model with two of them, and tokens below 4 prove 4 rows of a table.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import onnx

from convertkit.artifact import Artifact, TensorSpec

_HANDS_ON = frozenset(
    {"Cast", "Identity", "Unsqueeze", "Squeeze", "Reshape", "Flatten", "Transpose", "Slice", "Expand"}
)
_STORED_AS = frozenset({"Identity", "Cast", "DequantizeLinear"})
"""What may stand between a table as it is stored and as it is read."""


def with_index_bounds(source: Artifact, inputs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
    """``inputs`` of an ONNX source, integers without a range bounded by the smallest table that they index."""
    wanted = [spec.name for spec in inputs if spec.dtype in ("int32", "int64") and spec.value_range is None]
    if source.format != "onnx" or not wanted:
        return tuple(inputs)
    graph = onnx.load(source.path, load_external_data=False).graph
    rows = _rows(graph, wanted)
    return tuple(
        dataclasses.replace(spec, value_range=(0.0, float(rows[spec.name]))) if rows.get(spec.name, 0) > 1 else spec
        for spec in inputs
    )


def _rows(graph: onnx.GraphProto, names: Sequence[str]) -> dict[str, int]:
    """Rows of the smallest constant table that each named input indexes, as it is or moved."""
    tables = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    origin = {name: name for name in names}
    found: dict[str, int] = {}
    for node in graph.node:
        if node.op_type == "Constant":
            tables[node.output[0]] = next((tuple(a.t.dims) for a in node.attribute if a.name == "value"), ())
        elif node.op_type in _HANDS_ON and node.input[0] in origin:
            origin[node.output[0]] = origin[node.input[0]]
        elif node.op_type in _STORED_AS and node.input[0] in tables:
            tables[node.output[0]] = tables[node.input[0]]
        elif node.op_type == "Gather" and node.input[1] in origin and tables.get(node.input[0]):
            axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
            size, name = tables[node.input[0]][axis], origin[node.input[1]]
            found[name] = min(size, found.get(name, size))
    return found
