"""Rewriting a float graph into the forms that quantize well, without changing what it computes.

Batch normalisation disappears into the convolution before it, a bias that stands behind a
convolution moves into it, and Gemm gets one form.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.batch_norm import factor_and_offset, output_channels, scaled_and_shifted
from convertkit.onnx.edit import add_constant, bypass
from convertkit.quantization.graph.units import constant, is_constant, is_float
from convertkit.quantization.prepare.products import plain_gemm


def prepare(model: ir.Model) -> None:
    """Apply every rewriting in place."""
    for node in tuple(model.graph):
        if node.domain:
            continue
        if node.op_type in ("Relu", "Clip"):
            _clamp_before_pooling(node)
        elif node.op_type == "BatchNormalization":
            _fold_batch_norm(model.graph, node)
        elif node.op_type == "Add":
            _fold_bias(model.graph, node)
        elif node.op_type in ("Conv", "MaxPool", "AveragePool"):
            _explicit_pads(node)
            _weigh_dilated_average(model.graph, node)
        elif node.op_type == "Gemm":
            plain_gemm(model.graph, node)


def _clamp_before_pooling(node: ir.Node) -> None:
    """``MaxPool → Relu`` as ``Relu → MaxPool``, the same numbers: so the clamp reaches the convolution's range."""
    between = node.inputs[0]
    pool = None if between is None else between.producer()
    if pool is None or between is None or pool.op_type != "MaxPool" or len(pool.outputs) != 1:
        return
    source = pool.inputs[0]
    if source is None or between.is_graph_output() or len(tuple(between.uses())) != 1 or pool.graph is not node.graph:
        return
    after, graph = node.outputs[0], node.graph
    assert graph is not None
    if after.is_graph_output():
        return
    ir.convenience.replace_all_uses_with(after, between)
    pool.replace_input_with(0, after)
    node.replace_input_with(0, source)
    after.shape = source.shape
    graph.remove(node)
    graph.insert_before(pool, node)


def _weigh_dilated_average(graph: ir.Graph, node: ir.Node) -> None:
    """An AveragePool with dilations as a depthwise Conv: ONNX Runtime has no integer kernel of it and still fuses one.

    What counts the elements of each window apart (padding that is left out, ``ceil_mode``) stays, as does what is
    padded by a size that only the running model knows: a Conv with dilations is not.
    """
    data, dilations = node.inputs[0], node.attributes.get_ints("dilations", ())
    if node.op_type != "AveragePool" or all(step == 1 for step in dilations) or data is None or data.shape is None:
        return
    padded = any(node.attributes.get_ints("pads", ())) and node.attributes.get_int("count_include_pad", 0) == 0
    padded |= node.attributes.get_string("auto_pad", "").startswith("SAME")  # of a size that is not known
    channels = data.shape[1]
    if padded or node.attributes.get_int("ceil_mode", 0) != 0 or not isinstance(channels, int) or not is_float(data):
        return
    window = tuple(node.attributes.get_ints("kernel_shape", ()))
    weight = np.full((channels, 1, *window), 1 / math.prod(window), np.float32)
    node.op_type = "Conv"
    node.attributes.pop("count_include_pad", None)
    node.attributes.pop("ceil_mode", None)
    node.attributes["group"] = ir.AttrInt64("group", channels)
    node.resize_inputs(2)
    node.replace_input_with(1, add_constant(graph, f"{node.outputs[0].name}_shares", weight))


def _absorber(value: ir.Value | None) -> ir.Node | None:
    """The Conv or Gemm whose only reader gets ``value``, and whose weight and bias are constant."""
    if value is None or value.is_graph_output() or len(tuple(value.uses())) != 1:
        return None
    node = value.producer()
    if node is None or node.domain or node.op_type not in ("Conv", "ConvTranspose"):
        return None
    fixed = [item for item in node.inputs[1:] if item is not None]
    return node if all(is_constant(item) and is_float(item) for item in fixed) else None


def _fold_batch_norm(graph: ir.Graph, node: ir.Node) -> None:
    conv = _absorber(node.inputs[0])
    parameters = node.inputs[1:5]
    if conv is None or len(node.outputs) != 1 or node.attributes.get_int("training_mode") == 1:
        return
    if not all(value is not None and is_constant(value) for value in parameters):
        return
    factor, offset = factor_and_offset(node, [constant(value) for value in parameters if value is not None])
    assert conv.inputs[1] is not None
    greatest = np.abs(constant(conv.inputs[1])).max(initial=0) * np.abs(factor).max(initial=0)
    if not greatest <= np.finfo(np.float32).max:
        return
    _scale_and_shift(graph, conv, factor, offset)
    bypass(node, conv.outputs[0])


def _fold_bias(graph: ir.Graph, node: ir.Node) -> None:
    for index in (0, 1):
        conv, other = _absorber(node.inputs[index]), node.inputs[1 - index]
        if conv is None or other is None or not is_constant(other) or not is_float(other):
            continue
        weight = conv.inputs[1]
        assert weight is not None
        channels = output_channels(conv, constant(weight))
        shift, spatial = constant(other), constant(weight).ndim - 2
        # One value per channel, or one value: a leading 1 is the batch.
        flat = shift.reshape(shift.shape[1:] if shift.ndim == spatial + 2 and shift.shape[0] == 1 else shift.shape)
        if flat.size != 1 and flat.shape != (channels, *(1,) * spatial):
            continue
        _scale_and_shift(graph, conv, np.ones(channels), np.broadcast_to(flat.ravel(), channels).astype(np.float64))
        bypass(node, conv.outputs[0])
        return


def _scale_and_shift(graph: ir.Graph, conv: ir.Node, factor: Array, shift: Array) -> None:
    """Let ``conv`` compute ``conv(x) * factor + shift`` per output channel."""
    source = conv.inputs[1]
    assert source is not None
    old = conv.inputs[2] if len(conv.inputs) > 2 else None
    bias = None if old is None else constant(old)
    scaled, moved = scaled_and_shifted(conv, constant(source), bias, factor, shift)
    name = str(source.name)
    conv.replace_input_with(1, add_constant(graph, f"{name}_folded", scaled.astype(np.float32)))
    folded = add_constant(graph, f"{name}_bias", moved.astype(np.float32))
    conv.resize_inputs(3)
    conv.replace_input_with(2, folded)


def _explicit_pads(node: ir.Node) -> None:
    """``auto_pad`` as numbers, where the sizes are known; source: ONNX operators, Conv-11, ``auto_pad``."""
    way = node.attributes.get_string("auto_pad", "NOTSET")
    value, output = node.inputs[0], node.outputs[0]
    if way not in ("SAME_UPPER", "SAME_LOWER") or value is None or value.shape is None or output.shape is None:
        return
    sizes, made = tuple(value.shape)[2:], tuple(output.shape)[2:]
    weight = node.inputs[1] if node.op_type == "Conv" else None
    kernel = node.attributes.get_ints("kernel_shape") or (constant(weight).shape[2:] if weight is not None else ())
    ones = (1,) * len(kernel)
    strides, dilations = node.attributes.get_ints("strides", ones), node.attributes.get_ints("dilations", ones)
    before, after = [], []
    for size, out, width, stride, dilation in zip(sizes, made, kernel, strides, dilations, strict=True):
        if not isinstance(size, int) or not isinstance(out, int):
            return
        total = max((out - 1) * stride + (width - 1) * dilation + 1 - size, 0)
        small, large = total // 2, total - total // 2
        before.append(small if way == "SAME_UPPER" else large)
        after.append(large if way == "SAME_UPPER" else small)
    node.attributes.pop("auto_pad")
    node.attributes["pads"] = ir.AttrInt64s("pads", [*before, *after])
