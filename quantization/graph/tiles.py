"""Products too small for the matrix units of a GPU, which multiply whole tiles of integers.

Source: what NVIDIA's Model Optimizer 0.47 leaves in float for TensorRT's int8, as integers were slower there.
"""

from __future__ import annotations

import onnx_ir as ir

from convertkit.quantization.graph.sizes import sizes

_EDGE = 8
"""Channels come in groups of so many where one side is narrower than a tile."""
_WINDOW = 3
"""Windows of grouped convolutions that integers have kernels for are at least so long along each axis."""


def fills_tiles(node: ir.Node, tile: int) -> bool:
    """Whether a product's constant or computed matrix is at least ``tile`` wide where integers need it; else True."""
    weight = (*node.inputs, None, None)[1]
    shape = () if weight is None else sizes(weight)
    if node.op_type in ("Gemm", "MatMul"):
        return len(shape) < 2 or min(shape[-2:]) >= tile
    if node.op_type != "Conv" or len(shape) < 3:
        return True
    filters, channels, *window = shape
    if min(filters, channels) >= tile:
        return True
    if node.attributes.get_int("group", 1) > 1:
        return filters % _EDGE == 0 and min(window) >= _WINDOW
    entry = node.inputs[0]
    wide = max(filters, channels) >= tile or (entry is not None and entry.is_graph_input())
    return wide and len(set(window)) == 1 and (filters % _EDGE == 0 or channels % _EDGE == 0)
