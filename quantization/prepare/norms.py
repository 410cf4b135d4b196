"""Batch normalisations that no convolution absorbed, as depthwise convolutions of one pixel.

They stand at the head of a pre-activation block, behind an activation, or beside a branch.  No target has an
integer kernel for them, and an int8 product followed by an int8 sum rounds twice with one scale for all channels;
a depthwise convolution has a scale for each channel and an exact int32 bias.

before:  x: (N,C,H,W) → BatchNormalization → y
after:   x → Conv(group=C, w: (C,1,1,1), b) → y

Where all is integers, those of vectors behind a dense layer's activation, or of columns of a table, are the same of
sequences of one place.

before:  x: (N,C) → BatchNormalization → y
after:   x → Unsqueeze(2) → Conv(group=C, w: (C,1,1), b) → Squeeze(2) → y
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from convertkit.onnx.batch_norm import factor_and_offset
from convertkit.onnx.edit import add_constant, inserted, replaced
from convertkit.quantization.graph.units import constant, is_constant


def norms_as_convolutions(model: ir.Model, *, vectors: bool = False) -> None:
    """Rewrite every batch normalisation of an image or a sequence, and with ``vectors`` of vectors, in place."""
    ranks = (2, 3, 4) if vectors else (3, 4)
    for node in tuple(model.graph):
        if node.op_type == "BatchNormalization" and not node.domain and _is_fixed(node, ranks):
            _rewrite(model.graph, node)


def _is_fixed(node: ir.Node, ranks: tuple[int, ...]) -> bool:
    x = node.inputs[0]
    return (
        x is not None
        and x.shape is not None
        and x.dtype == ir.DataType.FLOAT
        and len(x.shape) in ranks
        and all(value is not None and is_constant(value) for value in node.inputs[1:5])
        and node.attributes.get_int("training_mode") != 1
    )


def _rewrite(graph: ir.Graph, node: ir.Node) -> None:
    x = node.inputs[0]
    assert x is not None
    assert x.shape is not None
    factor, offset = factor_and_offset(node, [constant(value) for value in node.inputs[1:5] if value])
    name, spatial = str(node.name), max(len(x.shape) - 2, 1)
    weight = factor.reshape(-1, *(1,) * (spatial + 1)).astype(np.float32)
    bias = offset.astype(np.float32)
    operands = [add_constant(graph, f"{name}_weight", weight), add_constant(graph, f"{name}_bias", bias)]
    attributes: dict[str, int | Sequence[int]] = {"group": len(factor), "kernel_shape": [1] * spatial}
    if len(x.shape) > 2:
        replaced(node, "Conv", [x, *operands], attributes)
        return
    place = add_constant(graph, f"{name}_place", np.array([2]))
    row = inserted(node, "Unsqueeze", [x, place], x, shape=ir.Shape([*x.shape, 1])).outputs[0]
    conv = inserted(node, "Conv", [row, *operands], row, attributes).outputs[0]
    replaced(node, "Squeeze", [conv, place])
