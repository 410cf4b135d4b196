"""Products of integers in float32 kernels, which compute them exactly while every partial sum is below 2^24.

Constant operands stay stored as the integers that they are: a DEQUANTIZE of constants is computed once, when a runtime
loads the model.  Products whose sums could grow larger are cut along the inner axis, and the parts added as int32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper

from convertkit.artifact import Array
from convertkit.errors import UnknownSize, Unsupported
from convertkit.profile import KEEP_FLOAT
from convertkit.targets.forms.body_nodes import Nodes, constant_of, is_constant, is_given, size_of

_EXACT = 1 << 24
_FLOAT, _INT32 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT32
_WHOLE: Mapping[str, str] = {KEEP_FLOAT: "its operands are integers: rounding them again would change them"}


@dataclass(frozen=True, slots=True)
class _Side:
    """An operand of a product, its zero point subtracted.

    ``integers``: the numbers, where they are constant, with the inner axis at ``axis``; else ``name`` is the value as
    float32.  ``span`` is the largest magnitude, ``inner`` the size along ``axis`` where known.
    """

    name: str
    integers: Array | None
    span: int
    axis: int
    inner: int | None

    def part(self, b: Nodes, first: int, last: int) -> str:
        """The operand between two places of the inner axis, as float32."""
        if self.integers is not None:
            return _stored(b, self.integers.take(range(first, last), self.axis))
        if (first, last) == (0, self.inner):
            return self.name
        return _cut(b, self.name, first, last, self.axis)


def mat_mul_integer(node: ir.Node, b: Nodes) -> str:
    """``MatMulInteger``: a, b, their zero points."""
    return _integer_product(b, _side(node, b, 0, 2, -1), _side(node, b, 1, 3, -2))


def q_linear_mat_mul(node: ir.Node, b: Nodes) -> str:
    """``QLinearMatMul``: a, its scale and zero point, b with its own, those of the result."""
    product = _integer_product(b, _side(node, b, 0, 2, -1), _side(node, b, 3, 5, -2))
    scale = b.constant((_scale(node, 1, -1) * _scale(node, 4, -2) / _scale(node, 6, -1)).astype(np.float32))
    return _requantized(node, b, b.op("Mul", [b.cast(product, _FLOAT), scale]), 7)


def conv_integer(node: ir.Node, b: Nodes) -> str:
    """``ConvInteger``: x, weights, their zero points; cut along the channels of ungrouped weights."""
    x = _shifted(node, b, 0, 2, None)
    weights = constant_of(node, 1).astype(np.int64)
    weights = weights - _channel_points(node, 3, weights.ndim)
    attributes = {name: _plain(attribute) for name, attribute in node.attributes.items()}
    room = np.abs(weights).reshape(*weights.shape[:2], -1).sum(2).T * _span(node, 0, 2)
    group = node.attributes.get_int("group", 1)
    if group > 1:
        _check_exact(room.sum(0).max(initial=0))
    parts = []
    for first, last in _cuts(room) if group == 1 else [(0, len(room))]:
        some = x if last - first == len(room) else _cut(b, x, first, last, 1)
        parts.append(b.cast(b.op("Conv", [some, _stored(b, weights[:, first:last])], attributes, _WHOLE), _INT32))
    return _sum(b, parts)


def q_linear_conv(node: ir.Node, b: Nodes) -> str:
    """What the int8 kernels take becomes a QDQ group for them; the rest is computed exactly."""
    weights = constant_of(node, 3)
    attributes = {name: _plain(attribute) for name, attribute in node.attributes.items()}
    bias = [b.inputs[8]] if len(node.inputs) > 8 and node.inputs[8] is not None else []
    rank = weights.ndim
    points = _channel_points(node, 5, rank)
    symmetric = not points.any() if weights.dtype == np.int8 else (points == 128).all()
    if symmetric:
        return _qdq_conv(node, b, bias, attributes)
    shifted = weights.astype(np.int64) - points
    room = np.abs(shifted).reshape(len(weights), -1).sum(1).max() * _span(node, 0, 2)
    _check_exact(room + (np.abs(constant_of(node, 8)).max() if bias else 0))
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


def _side(node: ir.Node, b: Nodes, place: int, point: int, axis: int) -> _Side:
    value = node.inputs[place]
    shape = None if value is None else value.shape
    if shape is None:
        raise Unsupported("integer matrices of unknown rank")
    axis = axis if len(shape) > 1 else -1
    inner = shape[axis]
    known = inner if isinstance(inner, int) else None
    if not is_constant(node, place) or (is_given(node, point) and not is_constant(node, point)):
        return _Side(_shifted(node, b, place, point, axis), None, _span(node, place, point), axis, known)
    integers = constant_of(node, place).astype(np.int64)
    if is_given(node, point):
        zero = constant_of(node, point).astype(np.int64)
        integers = integers - (zero[..., None] if place == 0 and zero.ndim == 1 and zero.size > 1 else zero)
    return _Side("", integers, int(np.abs(integers).max(initial=0)), axis, known)


def _integer_product(b: Nodes, x: _Side, y: _Side) -> str:
    """int32 ``x @ y`` of whole numbers, in slices of the inner axis whose sums stay exact."""
    inner = x.inner if x.inner is not None else y.inner
    if inner is None:
        raise UnknownSize("integer matrices whose inner size is only known at run time")
    if y.integers is not None:
        room = np.moveaxis(np.abs(y.integers), y.axis, 0).reshape(inner, -1) * x.span
    elif x.integers is not None:
        room = np.moveaxis(np.abs(x.integers), x.axis, 0).reshape(inner, -1) * y.span
    else:
        room = np.full((inner, 1), x.span * y.span)
    parts = [
        b.cast(b.op("MatMul", [x.part(b, first, last), y.part(b, first, last)], metadata=_WHOLE), _INT32)
        for first, last in _cuts(room)
    ]
    return _sum(b, parts)


def _cuts(room: Array) -> list[tuple[int, int]]:
    """Where to cut the inner axis, so that no sum of magnitudes ``room`` (inner, results) reaches 2^24."""
    if room.sum(0).max(initial=0) < _EXACT:
        return [(0, len(room))]
    places, total = [0], np.zeros(room.shape[1], np.int64)
    for place, row in enumerate(room):
        _check_exact(row.max())
        total = total + row
        if total.max() >= _EXACT:
            places.append(place)
            total = row
    return list(zip(places, [*places[1:], len(room)], strict=True))


def _sum(b: Nodes, parts: Sequence[str]) -> str:
    total = parts[0]
    for part in parts[1:]:
        total = b.op("Add", [total, part])
    return total


def _cut(b: Nodes, x: str, first: int, last: int, axis: int) -> str:
    return b.op("Slice", [x, *(b.constant(np.array([number], np.int64)) for number in (first, last, axis))])


def _stored(b: Nodes, integers: Array) -> str:
    """Constant integers as float32, stored in 8 bits where their range allows it, else in 16."""
    low, high = int(integers.min(initial=0)), int(integers.max(initial=0))  # 0 included: it stays
    ends = np.iinfo(np.int8)
    if high - low > ends.max - ends.min:
        stored, zero = integers.astype(np.int16), np.array(0, np.int16)
    else:
        moved = 0 if ends.min <= low and high <= ends.max else ends.min - low
        stored, zero = (integers + moved).astype(np.int8), np.array(moved, np.int8)
    return b.op("DequantizeLinear", [b.constant(stored), b.constant(np.array(1.0, np.float32)), b.constant(zero)])


def _requantized(node: ir.Node, b: Nodes, scaled: str, point: int) -> str:
    """Rounded half to even, moved by the zero point, limited to its type."""
    zero = constant_of(node, point)
    ends = np.iinfo(zero.dtype)
    moved = b.op("Add", [b.op("Round", [scaled]), b.constant(zero.astype(np.float32))])
    low, high = (b.constant(np.array(end, np.float32)) for end in (ends.min, ends.max))
    return b.cast(b.op("Clip", [moved, low, high]), helper.np_dtype_to_tensor_dtype(zero.dtype))


def _shifted(node: ir.Node, b: Nodes, place: int, point: int, axis: int | None) -> str:
    """An integer input as float32, its zero point subtracted; a vector of those lies along ``axis``."""
    real = b.cast(b.inputs[place], _FLOAT)
    if not is_given(node, point):
        return real
    if not is_constant(node, point):  # what DynamicQuantizeLinear gives: one for all
        if size_of(node, point) != 1:
            constant_of(node, point)
        moved = b.op("Reshape", [b.cast(b.inputs[point], _FLOAT), b.constant(np.zeros(0, np.int64))])
        return b.op("Sub", [real, moved])
    zero = constant_of(node, point).astype(np.float32)
    if axis == -1 and zero.size > 1:
        zero = zero[..., None] if zero.ndim == 1 else zero
    return b.op("Sub", [real, b.constant(zero.reshape(()) if zero.size == 1 else zero)])


def _scale(node: ir.Node, place: int, axis: int | None) -> Array:
    value = constant_of(node, place).astype(np.float32)
    if value.size == 1:
        return value.reshape(())
    return value[..., None] if axis == -1 and value.ndim == 1 else value


def _channel_points(node: ir.Node, place: int, rank: int) -> Array:
    """Zero points of weights, along their first axis."""
    if not is_given(node, place):
        return np.zeros((), np.int64)
    points = constant_of(node, place).astype(np.int64)
    return points.reshape(()) if points.size == 1 else points.reshape(-1, *(1,) * (rank - 1))


def _span(node: ir.Node, place: int, point: int) -> int:
    """The largest magnitude that an input can have after its zero point is subtracted."""
    value = node.inputs[place]
    assert value is not None
    assert value.dtype is not None
    ends = np.iinfo(value.dtype.numpy())
    if is_given(node, point) and not is_constant(node, point):
        return int(ends.max - ends.min)
    zero = constant_of(node, point).astype(np.int64) if is_given(node, point) else np.zeros(1, np.int64)
    return int(max((ends.max - zero).max(), (zero - ends.min).max()))


def _check_exact(largest: float) -> None:
    if largest >= _EXACT:
        raise Unsupported("sums of products beyond 2^24, which float32 kernels would round; give the model as QDQ")


def _plain(attribute: ir.Attr) -> object:
    value = attribute.value
    return list(value) if isinstance(value, list | tuple) else value
