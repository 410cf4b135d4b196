"""Outputs of the types that a program declares, where torch's exporter leaves a wider one.

It computes sums and extremes of float16 in float32, as torch does, and does not round what comes out.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import torch

_HALVES = {torch.float16: ir.DataType.FLOAT16, torch.bfloat16: ir.DataType.BFLOAT16}


def keep_types(graph: ir.Graph, program: Any) -> None:
    """Round outputs that the program declares as a half type and the graph leaves in float32, in place."""
    (end,) = (node for node in program.graph.nodes if node.op == "output")
    declared = [getattr(getattr(each, "meta", {}).get("val"), "dtype", None) for each in end.args[0]]
    if len(declared) != len(graph.outputs):
        return
    for place, (value, dtype) in enumerate(zip(list(graph.outputs), declared, strict=True)):
        if dtype in _HALVES and value.dtype == ir.DataType.FLOAT and value.producer() is not None:
            name = value.name
            value.name = f"{name}_wide"
            cast = ir.node("Cast", [value], {"to": int(_HALVES[dtype])}, name=f"{name}_narrow")
            narrow = cast.outputs[0]
            narrow.name, narrow.shape, narrow.type = name, value.shape, ir.TensorType(_HALVES[dtype])
            graph.append(cast)
            graph.outputs[place] = narrow
