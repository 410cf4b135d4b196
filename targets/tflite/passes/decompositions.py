"""Function bodies that ONNX does not define: operators in terms of others, for one node at a time.

A body is made for the node's own shapes and constants.  Products of integers are computed in float32 only
where every partial sum is below 2^24, so that nothing is ever rounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from convertkit.artifact import Array
from convertkit.errors import Unsupported
from convertkit.onnx.origin import location
from convertkit.targets.tflite.passes.einsum import einsum_nodes
from convertkit.targets.tflite.passes.image_norms import norm_nodes

_EXACT = 1 << 24
_OPSET = 18
_FLOAT, _INT32 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT32


class Nodes:
    """Collects the nodes of a body; every method appends one and returns its result's name."""

    def __init__(self, node: ir.Node) -> None:
        self.inputs = [f"x{place}" for place in range(len(node.inputs))]
        self.list: list[onnx.NodeProto] = []

    def op(self, kind: str, inputs: Sequence[str], attributes: Mapping[str, object] | None = None) -> str:
        """Append an operator."""
        name = f"v{len(self.list)}"
        made = helper.make_node(kind, inputs, [name])
        for key, value in (attributes or {}).items():
            made.attribute.append(helper.make_attribute(key, value))
        self.list.append(made)
        return name

    def constant(self, value: Array) -> str:
        """Append a constant."""
        return self.op("Constant", [], {"value": numpy_helper.from_array(np.asarray(value))})

    def cast(self, x: str, to: int) -> str:
        """Append a cast."""
        return self.op("Cast", [x], {"to": to})


Body = Callable[[ir.Node, Nodes], str]


def own_body(node: ir.Node) -> onnx.FunctionProto | None:
    """The body of ``node`` with inputs x0, x1, …, None where we have none."""
    make = BODIES.get(node.op_type)
    if make is None or (node.op_type == "BatchNormalization" and not _is_computed_norm(node)):
        return None
    nodes = Nodes(node)
    try:
        result = make(node, nodes)
    except Unsupported as refusal:
        raise refusal.located(f"{node.name} ({node.op_type})", location(node), ("--target onnxruntime",)) from None
    opsets = [helper.make_opsetid("", _OPSET)]
    return helper.make_function("", node.op_type, nodes.inputs, [result], nodes.list, opsets)


def _instance_normalization(node: ir.Node, b: Nodes) -> str:
    return norm_nodes(b, _rank(node), None, None, _attribute(node, "epsilon", 1e-5), 1)


def _group_normalization(node: ir.Node, b: Nodes) -> str:
    """Scale and bias are of channels, of groups before opset 21."""
    sizes = [_sizes(node, place) for place in (0, 1)]
    channels, given, groups = sizes[0][1], sizes[1][0], int(_attribute(node, "num_groups", 1))
    if not isinstance(channels, int) or not isinstance(given, int):
        raise Unsupported("GroupNormalization over a number of channels that is only known at run time")
    return norm_nodes(b, len(sizes[0]), channels, groups, _attribute(node, "epsilon", 1e-5), channels // given)


def _sizes(node: ir.Node, place: int) -> list[object]:
    value = node.inputs[place]
    if value is None or value.shape is None:
        raise Unsupported("an input whose rank is unknown")
    return list(value.shape)


def _is_computed_norm(node: ir.Node) -> bool:
    """Whether a BatchNormalization has other numbers than constants, which are folded elsewhere."""
    training = node.attributes.get("training_mode")
    stated = training is None or not training.as_int()
    return stated and not all(_is_constant(node, place) for place in range(1, 5))


def _batch_normalization(node: ir.Node, b: Nodes) -> str:
    """``(x - mean) / sqrt(variance + epsilon) * scale + bias`` for each channel."""
    view = b.constant(np.array([-1, *[1] * (_rank(node) - 2)], np.int64))
    scale, bias, mean, variance = (b.op("Reshape", [name, view]) for name in b.inputs[1:5])
    epsilon = b.constant(np.array(_attribute(node, "epsilon", 1e-5), np.float32))
    unit = b.op("Div", [b.op("Sub", [b.inputs[0], mean]), b.op("Sqrt", [b.op("Add", [variance, epsilon])])])
    return b.op("Add", [b.op("Mul", [unit, scale]), bias])


def _conv_integer(node: ir.Node, b: Nodes) -> str:
    x = _shifted(node, b, 0, 2, None)
    weights = _integers(node, 1) - _channel_points(node, 3, _integers(node, 1).ndim)
    _check_exact(np.abs(weights).reshape(len(weights), -1).sum(1).max() * _span(node, 0, 2))
    attributes = {name: _plain(attribute) for name, attribute in node.attributes.items()}
    product = b.op("Conv", [x, b.constant(weights.astype(np.float32))], attributes)
    return b.cast(product, _INT32)


def _mat_mul_integer(node: ir.Node, b: Nodes) -> str:
    return _integer_product(b, _shifted(node, b, 0, 2, -1), _shifted(node, b, 1, 3, -2), node, (0, 2, 1, 3))


def _integer_product(b: Nodes, x: str, y: str, node: ir.Node, places: tuple[int, int, int, int]) -> str:
    """int32 ``x @ y`` of whole floats, in slices of the inner axis whose sums stay exact."""
    shape = node.inputs[0].shape if node.inputs[0] is not None else None
    if shape is None or not isinstance(shape[-1], int):
        raise Unsupported("integer matrices whose inner size is only known at run time")
    step = max(_EXACT // (_span(node, places[0], places[1]) * _span(node, places[2], places[3])), 1)
    if shape[-1] <= step:
        return b.cast(b.op("MatMul", [x, y]), _INT32)
    total = ""
    for first in range(0, shape[-1], step):
        ends = [b.constant(np.array([end], np.int64)) for end in (first, min(first + step, shape[-1]))]
        left = b.op("Slice", [x, *ends, b.constant(np.array([-1], np.int64))])
        right = b.op("Slice", [y, *ends, b.constant(np.array([-2], np.int64))])
        part = b.cast(b.op("MatMul", [left, right]), _INT32)
        total = b.op("Add", [total, part]) if total else part
    return total


def _q_linear_mat_mul(node: ir.Node, b: Nodes) -> str:
    product = _integer_product(b, _shifted(node, b, 0, 2, -1), _shifted(node, b, 3, 5, -2), node, (0, 2, 3, 5))
    scale = b.constant((_scale(node, 1, -1) * _scale(node, 4, -2) / _scale(node, 6, -1)).astype(np.float32))
    return _requantized(node, b, b.op("Mul", [b.cast(product, _FLOAT), scale]), 7)


def _q_linear_conv(node: ir.Node, b: Nodes) -> str:
    """What the int8 kernels take becomes a QDQ group for them; the rest is computed exactly."""
    weights = _integers(node, 3)
    attributes = {name: _plain(attribute) for name, attribute in node.attributes.items()}
    bias = [b.inputs[8]] if len(node.inputs) > 8 and node.inputs[8] is not None else []
    rank = weights.ndim
    points = _channel_points(node, 5, rank)
    symmetric = not points.any() if weights.dtype == np.int8 else (points == 128).all()
    if symmetric:
        return _qdq_conv(node, b, bias, attributes)
    shifted = weights.astype(np.int64) - points
    room = np.abs(shifted).reshape(len(weights), -1).sum(1).max() * _span(node, 0, 2)
    _check_exact(room + (np.abs(_integers(node, 8)).max() if bias else 0))
    inputs = [_shifted(node, b, 0, 2, None), b.constant(shifted.astype(np.float32))]
    product = b.op("Conv", [*inputs, *(b.cast(name, _FLOAT) for name in bias)], attributes)
    factor = _scale(node, 1, None) * _scale(node, 4, None) / _scale(node, 6, None)
    view = (-1, *(1,) * (rank - 2))
    return _requantized(node, b, b.op("Mul", [product, b.constant(factor.reshape(view).astype(np.float32))]), 7)


def _qdq_conv(node: ir.Node, b: Nodes, bias: list[str], attributes: Mapping[str, object]) -> str:
    x = b.op("DequantizeLinear", b.inputs[0:3])
    w = b.op("DequantizeLinear", b.inputs[3:6], {"axis": 0})
    if bias:
        scale = b.op("Mul", [b.inputs[1], b.inputs[4]])
        bias = [b.op("DequantizeLinear", [bias[0], scale], {"axis": 0})]
    return b.op("QuantizeLinear", [b.op("Conv", [x, w, *bias], attributes), b.inputs[6], b.inputs[7]])


def _requantized(node: ir.Node, b: Nodes, scaled: str, point: int) -> str:
    """Rounded half to even, moved by the zero point, limited to its type."""
    zero = _integers(node, point)
    ends = np.iinfo(zero.dtype)
    moved = b.op("Add", [b.op("Round", [scaled]), b.constant(zero.astype(np.float32))])
    low, high = (b.constant(np.array(end, np.float32)) for end in (ends.min, ends.max))
    return b.cast(b.op("Clip", [moved, low, high]), helper.np_dtype_to_tensor_dtype(zero.dtype))


def _shifted(node: ir.Node, b: Nodes, place: int, point: int, axis: int | None) -> str:
    """An integer input as float32, its zero point subtracted; a vector of those lies along ``axis``."""
    real = b.cast(b.inputs[place], _FLOAT)
    if not _given(node, point):
        return real
    if not _is_constant(node, point):  # what DynamicQuantizeLinear gives: one for all
        if _size(node, point) != 1:
            _integers(node, point)
        moved = b.op("Reshape", [b.cast(b.inputs[point], _FLOAT), b.constant(np.zeros(0, np.int64))])
        return b.op("Sub", [real, moved])
    zero = _integers(node, point).astype(np.float32)
    if axis == -1 and zero.size > 1:
        zero = zero[..., None] if zero.ndim == 1 else zero
    return b.op("Sub", [real, b.constant(zero.reshape(()) if zero.size == 1 else zero)])


def _scale(node: ir.Node, place: int, axis: int | None) -> Array:
    value = _constant(node, place).astype(np.float32)
    if value.size == 1:
        return value.reshape(())
    return value[..., None] if axis == -1 and value.ndim == 1 else value


def _channel_points(node: ir.Node, place: int, rank: int) -> Array:
    """Zero points of weights, along their first axis."""
    if not _given(node, place):
        return np.zeros((), np.int64)
    points = _integers(node, place).astype(np.int64)
    return points.reshape(()) if points.size == 1 else points.reshape(-1, *(1,) * (rank - 1))


def _span(node: ir.Node, place: int, point: int) -> int:
    """The largest magnitude that an input can have after its zero point is subtracted."""
    value = node.inputs[place]
    assert value is not None
    assert value.dtype is not None
    ends = np.iinfo(value.dtype.numpy())
    if _given(node, point) and not _is_constant(node, point):
        return int(ends.max - ends.min)
    zero = _integers(node, point).astype(np.int64) if _given(node, point) else np.zeros(1, np.int64)
    return int(max((ends.max - zero).max(), (zero - ends.min).max()))


def _check_exact(largest: float) -> None:
    if largest >= _EXACT:
        raise Unsupported("sums of products beyond 2^24, which float32 kernels would round; give the model as QDQ")


def _given(node: ir.Node, place: int) -> bool:
    return len(node.inputs) > place and node.inputs[place] is not None


def _is_constant(node: ir.Node, place: int) -> bool:
    value = node.inputs[place]
    return value is not None and value.const_value is not None


def _size(node: ir.Node, place: int) -> int | None:
    """How many elements an input has, None where that is not known."""
    value = node.inputs[place]
    shape = None if value is None else value.shape
    sizes = [None] if shape is None else [size if isinstance(size, int) else None for size in shape]
    return None if None in sizes else math.prod(size for size in sizes if size is not None)


def _constant(node: ir.Node, place: int) -> Array:
    value = node.inputs[place]
    if value is None or value.const_value is None:
        raise Unsupported(
            "scales, zero points or weights that are computed at run time",
            subject=f"{node.name} ({node.op_type})",
            ways_out=("convert the float model with --w8: activations are then quantized on the fly",),
        )
    return value.const_value.numpy()


def _integers(node: ir.Node, place: int) -> Array:
    return _constant(node, place)


def _rank(node: ir.Node) -> int:
    value = node.inputs[0]
    if value is None or value.shape is None:
        raise Unsupported("the input's rank is unknown")
    return len(value.shape)


def _attribute(node: ir.Node, name: str, default: float) -> float:
    attribute = node.attributes.get(name)
    return default if attribute is None else float(attribute.value)


def _plain(attribute: ir.Attr) -> object:
    value = attribute.value
    return list(value) if isinstance(value, list | tuple) else value


def _einsum(node: ir.Node, b: Nodes) -> str:
    return einsum_nodes(str(node.attributes["equation"].value), [_shape_of(value) for value in node.inputs], b)


def _shape_of(value: ir.Value | None) -> tuple[int | None, ...]:
    if value is None or value.shape is None:
        raise Unsupported("Einsum of an input whose rank is unknown")
    return tuple(size if isinstance(size, int) else None for size in value.shape)


BODIES: Mapping[str, Body] = {
    "BatchNormalization": _batch_normalization,
    "ConvInteger": _conv_integer,
    "Einsum": _einsum,
    "GroupNormalization": _group_normalization,
    "InstanceNormalization": _instance_normalization,
    "MatMulInteger": _mat_mul_integer,
    "QLinearConv": _q_linear_conv,
    "QLinearMatMul": _q_linear_mat_mul,
}
"""Operators whose bodies are ours."""
