"""Batch normalisations that no convolution absorbed, as depthwise convolutions of one pixel.

They stand at the head of a pre-activation block, behind an activation, or beside a branch.  No target has an
integer kernel for them, and an int8 product followed by an int8 sum rounds twice with one scale for all channels;
a depthwise convolution has a scale for each channel and an exact int32 bias.

before:  x: (N,C,H,W) → BatchNormalization → y
after:   x → Conv(group=C, w: (C,1,1,1), b) → y
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.onnx.batch_norm import factor_and_offset
from convertkit.onnx.edit import add_constant
from convertkit.quantization.graph.units import constant, is_constant


def norms_as_convolutions(model: ir.Model) -> None:
    """Rewrite every batch normalisation of an image or a sequence, in place."""
    for node in tuple(model.graph):
        if node.op_type == "BatchNormalization" and not node.domain and _is_fixed(node):
            _rewrite(model.graph, node)


def _is_fixed(node: ir.Node) -> bool:
    x = node.inputs[0]
    return (
        x is not None
        and x.shape is not None
        and x.dtype == ir.DataType.FLOAT
        and len(x.shape) in (3, 4)
        and all(value is not None and is_constant(value) for value in node.inputs[1:5])
        and node.attributes.get_int("training_mode") != 1
    )


def _rewrite(graph: ir.Graph, node: ir.Node) -> None:
    x, old = node.inputs[0], node.outputs[0]
    assert x is not None
    assert x.shape is not None
    factor, offset = factor_and_offset(node, [constant(value) for value in node.inputs[1:5] if value])
    name = str(node.name)
    weight = factor.reshape(-1, *(1,) * (len(x.shape) - 1)).astype(np.float32)
    bias = offset.astype(np.float32)
    operands = [x, add_constant(graph, f"{name}_weight", weight), add_constant(graph, f"{name}_bias", bias)]
    conv = ir.node("Conv", operands, {"group": len(factor), "kernel_shape": [1] * (len(x.shape) - 2)}, name=name)
    conv.metadata_props.update(node.metadata_props)
    new = conv.outputs[0]
    new.shape, new.type, new.name = old.shape, ir.TensorType(ir.DataType.FLOAT), old.name
    graph.insert_before(node, conv)
    ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
    graph.remove(node, safe=True)
