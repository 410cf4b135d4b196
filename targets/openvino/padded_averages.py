"""Averages over padding of quantized values, as convolutions in float.

The CPU plugin pads an integer average with the integer 0, which stands for another number wherever the zero point is
not 0.  Measured in OpenVINO 2026.4; a Pad in front of the average is fused into it.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from convertkit.errors import Unsupported
from convertkit.onnx.edit import add_constant


def write_as_convolutions(model: ir.Model) -> int:
    """Replace every AveragePool that may average over padding of dequantized values, in place; how many there were.

    ``Unsupported`` where a convolution cannot say the same: channels that are not known, windows that end outside.
    """
    found = [node for node in model.graph if node.op_type == "AveragePool" and _counts_padding(node)]
    for node in found:
        _rewrite(model.graph, node)
    return len(found)


def _counts_padding(node: ir.Node) -> bool:
    data = None if node.inputs[0] is None else node.inputs[0].producer()
    if data is not None and data.op_type == "Pad":
        source = None if data.inputs[0] is None else data.inputs[0].producer()
        return _is_dequantized(source)
    padded = any(node.attributes.get_ints("pads", ())) or node.attributes.get_string("auto_pad", "NOTSET") != "NOTSET"
    return _is_dequantized(data) and padded and node.attributes.get_int("count_include_pad", 0) == 1


def _is_dequantized(node: ir.Node | None) -> bool:
    return node is not None and node.op_type == "DequantizeLinear"


def _rewrite(graph: ir.Graph, node: ir.Node) -> None:
    data, result = node.inputs[0], node.outputs[0]
    channels = None if data is None or data.shape is None or len(data.shape) < 2 else data.shape[1]
    outside = node.attributes.get_int("ceil_mode", 0) or node.attributes.get_string("auto_pad", "NOTSET") != "NOTSET"
    if not isinstance(channels, int) or outside:
        raise Unsupported(
            "OpenVINO averages padding of integers as the integer 0, which is not their zero",
            subject=f"{node.name} (AveragePool)",
            ways_out=("export without --int8", "--target onnxruntime"),
        )
    window = list(node.attributes.get_ints("kernel_shape"))
    share = np.full((channels, 1, *window), 1 / math.prod(window), np.float32)
    kept = [node.attributes[key] for key in ("kernel_shape", "strides", "pads", "dilations") if key in node.attributes]
    weight = add_constant(graph, f"{result.name}_shares", share, separator="")
    made = ir.Node("", "Conv", [data, weight], [*kept, ir.AttrInt64("group", channels)], num_outputs=1, name=node.name)
    made.outputs[0].type, made.outputs[0].shape = result.type, result.shape
    graph.insert_before(node, made)
    ir.convenience.replace_all_uses_with(result, made.outputs[0], replace_graph_outputs=True)
    name = result.name
    graph.remove(node, safe=True)
    made.outputs[0].name = name
