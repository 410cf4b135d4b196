"""Outputs of the graph that a kernel writes in float need no quantization."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from convertkit.onnx.edit import bypass, only_user
from convertkit.quantization.graph.units import Unit


def keep_ends_real(graph: ir.Graph, integer: Iterable[Unit]) -> None:
    """Drop the pair between a unit whose rule says ``float_output`` and the graph's output, in place."""
    for unit in integer:
        if unit.rule is None or not unit.rule.float_output or unit.clamp is not None:
            continue
        for value in unit.outputs:
            quantize = only_user(value)
            dequantize = None if quantize is None else only_user(quantize.outputs[0])
            if quantize is None or dequantize is None or quantize.op_type != "QuantizeLinear":
                continue
            real = dequantize.outputs[0]
            if real.is_graph_output() and not real.uses():
                bypass(dequantize, value)
                graph.remove(quantize, safe=True)
