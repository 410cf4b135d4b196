"""Function bodies that ONNX does not define: operators in terms of others, for one node at a time.

A body is made for the node's own shapes and constants.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper

from convertkit.errors import UnknownSize, Unsupported
from convertkit.onnx.origin import location
from convertkit.targets.forms.body_nodes import Nodes, is_constant
from convertkit.targets.forms.einsum import einsum_nodes
from convertkit.targets.forms.free_sizes import ways_out
from convertkit.targets.forms.image_norms import VARIES, norm_nodes
from convertkit.targets.forms.integer_products import (
    conv_integer,
    mat_mul_integer,
    q_linear_conv,
    q_linear_mat_mul,
)

_OPSET = 18


Body = Callable[[ir.Node, Nodes], str | tuple[str, ...]]


def own_body(node: ir.Node) -> onnx.FunctionProto | None:
    """The body of ``node`` with inputs x0, x1, …, None where we have none."""
    make = BODIES.get(node.op_type)
    if make is None or (node.op_type == "BatchNormalization" and not _is_computed_norm(node)):
        return None
    nodes = Nodes(node)
    try:
        result = make(node, nodes)
    except Unsupported as refusal:
        ways = ways_out(refusal, node, ("--target onnxruntime",))
        raise refusal.located(f"{node.name} ({node.op_type})", location(node), ways) from None
    opsets = [helper.make_opsetid("", _OPSET)]
    results = [result] if isinstance(result, str) else list(result)
    return helper.make_function("", node.op_type, nodes.inputs, results, nodes.list, opsets)


def _instance_normalization(node: ir.Node, b: Nodes) -> str:
    return norm_nodes(b, _rank(node), None, None, _attribute(node, "epsilon", 1e-5), 1, twice=False)


def _group_normalization(node: ir.Node, b: Nodes) -> str:
    """Scale and bias are of channels, of groups before opset 21."""
    sizes = [_sizes(node, place) for place in (0, 1)]
    channels, given, groups = sizes[0][1], sizes[1][0], int(_attribute(node, "num_groups", 1))
    if not isinstance(channels, int) or not isinstance(given, int):
        raise UnknownSize("GroupNormalization over a number of channels that is only known at run time")
    epsilon, twice = _attribute(node, "epsilon", 1e-5), VARIES not in node.metadata_props
    return norm_nodes(b, len(sizes[0]), channels, groups, epsilon, channels // given, twice=twice)


def _mean_variance_normalization(node: ir.Node, b: Nodes) -> str:
    """``(x - mean) / deviation``, and zeros where all elements are equal.

    As ONNX Runtime computes it, without the 1e-9 that ONNX's body adds to the deviation.  The mean of what is left is
    taken off, too: the mean's own rounding is all that equal elements leave.
    """
    axes = b.constant(np.array(node.attributes.get_ints("axes", (0, 2, 3)), np.int64))
    shifted = b.op("Sub", [b.inputs[0], b.op("ReduceMean", [b.inputs[0], axes])])
    centred = b.op("Sub", [shifted, b.op("ReduceMean", [shifted, axes])])
    variance = b.op("ReduceMean", [b.op("Mul", [centred, centred]), axes])
    deviation = b.op("Add", [b.op("Sqrt", [variance]), b.constant(np.array(1e-30, np.float32))])
    return b.op("Div", [centred, deviation])


def _sizes(node: ir.Node, place: int) -> list[object]:
    value = node.inputs[place]
    if value is None or value.shape is None:
        raise Unsupported("an input whose rank is unknown")
    return list(value.shape)


def _is_computed_norm(node: ir.Node) -> bool:
    """Whether a BatchNormalization has other numbers than constants, which are folded elsewhere."""
    training = node.attributes.get("training_mode")
    stated = training is None or not training.as_int()
    return stated and not all(is_constant(node, place) for place in range(1, 5))


def _batch_normalization(node: ir.Node, b: Nodes) -> str:
    """``(x - mean) / sqrt(variance + epsilon) * scale + bias`` for each channel."""
    view = b.constant(np.array([-1, *[1] * (_rank(node) - 2)], np.int64))
    scale, bias, mean, variance = (b.op("Reshape", [name, view]) for name in b.inputs[1:5])
    epsilon = b.constant(np.array(_attribute(node, "epsilon", 1e-5), np.float32))
    unit = b.op("Div", [b.op("Sub", [b.inputs[0], mean]), b.op("Sqrt", [b.op("Add", [variance, epsilon])])])
    return b.op("Add", [b.op("Mul", [unit, scale]), bias])


def _rank(node: ir.Node) -> int:
    value = node.inputs[0]
    if value is None or value.shape is None:
        raise Unsupported("the input's rank is unknown")
    return len(value.shape)


def _attribute(node: ir.Node, name: str, default: float) -> float:
    attribute = node.attributes.get(name)
    return default if attribute is None else float(attribute.value)


def _dynamic_quantize_linear(node: ir.Node, b: Nodes) -> tuple[str, ...]:
    """ONNX's body, and a scale of 1 where every element is 0, as ONNX Runtime has it: the range's is 0 there."""
    del node
    zero, one, levels = (b.constant(np.array(number, np.float32)) for number in (0, 1, 255))
    low = b.op("Min", [b.op("ReduceMin", [b.inputs[0]], {"keepdims": 0}), zero])
    high = b.op("Max", [b.op("ReduceMax", [b.inputs[0]], {"keepdims": 0}), zero])
    width = b.op("Sub", [high, low])
    scale = b.op("Where", [b.op("Equal", [width, zero]), one, b.op("Div", [width, levels])])
    place = b.op("Round", [b.op("Sub", [zero, b.op("Div", [low, scale])])])
    point = b.cast(b.op("Clip", [place, zero, levels]), onnx.TensorProto.UINT8)
    return b.op("QuantizeLinear", [b.inputs[0], scale, point]), scale, point


def _hardmax(node: ir.Node, b: Nodes) -> str:
    """1 where ArgMax says, of the first of equal elements, and 0 elsewhere."""
    sizes = _sizes(node, 0)
    axis = node.attributes.get_int("axis", -1) % len(sizes)
    size = sizes[axis]
    value = node.inputs[0]
    if not isinstance(size, int) or value is None or value.dtype is None:
        raise UnknownSize("Hardmax over an axis whose size is only known at run time")
    places = np.arange(size, dtype=np.int64).reshape([-1 if each == axis else 1 for each in range(len(sizes))])
    first = b.op("ArgMax", [b.inputs[0]], {"axis": axis, "keepdims": 1})
    return b.cast(b.op("Equal", [first, b.constant(places)]), int(value.dtype))


_WINDOW = ("kernel_shape", "strides", "pads", "dilations", "auto_pad", "ceil_mode")


def _lp_pool(node: ir.Node, b: Nodes) -> str:
    """The root of a mean of powers, times the size of the window: what is padded counts as 0."""
    kernel, power = node.attributes.get_ints("kernel_shape"), float(node.attributes.get_int("p", 2))
    stated = {name: node.attributes[name].value for name in _WINDOW if name in node.attributes}
    raised = b.op("Pow", [b.op("Abs", [b.inputs[0]]), b.constant(np.array(power, np.float32))])
    mean = b.op("AveragePool", [raised], {**stated, "count_include_pad": 1})
    total = b.op("Mul", [mean, b.constant(np.array(math.prod(kernel), np.float32))])
    return b.op("Pow", [total, b.constant(np.array(1 / power, np.float32))])


def _einsum(node: ir.Node, b: Nodes) -> str:
    return einsum_nodes(str(node.attributes["equation"].value), [_shape_of(value) for value in node.inputs], b)


def _shape_of(value: ir.Value | None) -> tuple[int | None, ...]:
    if value is None or value.shape is None:
        raise Unsupported("Einsum of an input whose rank is unknown")
    return tuple(size if isinstance(size, int) else None for size in value.shape)


BODIES: Mapping[str, Body] = {
    "BatchNormalization": _batch_normalization,
    "ConvInteger": conv_integer,
    "DynamicQuantizeLinear": _dynamic_quantize_linear,
    "Einsum": _einsum,
    "GroupNormalization": _group_normalization,
    "Hardmax": _hardmax,
    "InstanceNormalization": _instance_normalization,
    "LpPool": _lp_pool,
    "MatMulInteger": mat_mul_integer,
    "MeanVarianceNormalization": _mean_variance_normalization,
    "QLinearConv": q_linear_conv,
    "QLinearMatMul": q_linear_mat_mul,
}
"""Operators whose bodies are ours."""
