"""Whether the elements of a value may all be equal along some axes, as they are on silence and constants.

Where they never are, the rounding of their mean is small beside their deviations, and nothing has to be done about it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import onnx_ir as ir

from convertkit.onnx.edit import array_of, sizes

_Place = tuple[ir.Value, tuple[int, ...]]
"""A value, and axes of it."""
_FUNCTIONS = frozenset({
    "Abs", "Cast", "Celu", "Clip", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu",
    "Log", "Mish", "Neg", "Pow", "Reciprocal", "Relu", "Selu", "Sigmoid", "Softplus", "Softsign", "Sqrt", "Swish",
    "Tanh",
})  # fmt: skip
"""Operators of which each element of the result depends on that of the first operand alone."""
_SUMS, _PRODUCTS = frozenset({"Add", "Sub", "Sum", "Concat"}), frozenset({"Mul", "Div"})
_BIASED = {"MatMul": 2, "Gemm": 2, "Conv": 2, "ConvTranspose": 2, "LayerNormalization": 2, "BatchNormalization": 2}
"""Operators that end in a bias along one axis, and which operand that is."""
_BY_CHANNEL = frozenset({"Conv", "ConvTranspose", "BatchNormalization"})
_MOST = 400


_MIXING = frozenset({"MatMul", "Gemm", "Conv", "ConvTranspose"})


def varies(x: ir.Value, axes: tuple[int, ...], *, small_may_equal: bool = False) -> bool:
    """Whether constants make the elements along ``axes`` differ on silence, too: a bias, a table of positions.

    ``small_may_equal`` says that only large elements must not be equal, as behind a usual epsilon.  Then the weights of
    a layer make features differ, and padding makes the borders differ: only on silence neither does.
    """
    open_, seen = [(x, axes)], {(x, axes)}
    while open_ and len(seen) < _MOST:
        value, along = open_.pop()
        if _is_varied(value, along) or (small_may_equal and _is_mixed(value, along)):
            return True
        new = [each for each in _operands(value, along) if each not in seen]
        open_.extend(new)
        seen.update(new)
    return False


def _is_varied(value: ir.Value, axes: tuple[int, ...]) -> bool:
    """Whether a value is a constant that differs along the axes, or what a bias or a table makes differ there."""
    constant, node = array_of(value), value.producer()
    if constant is not None:
        return any(bool((constant != constant.take([0], axis)).any()) for axis in axes if constant.shape[axis])
    if node is None or node.domain:
        return False
    if node.op_type == "Gather":
        return array_of(node.inputs[0]) is not None
    place = _BIASED.get(node.op_type, len(node.inputs))
    bias = array_of(node.inputs[place]) if place < len(node.inputs) else None
    return _features(node) in axes and bias is not None and bool((bias != bias.reshape(-1)[:1]).any())


def _is_mixed(value: ir.Value, axes: tuple[int, ...]) -> bool:
    """Whether weights make features along ``axes`` differ, or padding and overlaps make pixels differ."""
    node = value.producer()
    if node is None or node.domain or node.op_type not in _MIXING:
        return False
    weights = array_of(node.inputs[1])
    if weights is None or weights.size < 2:
        return False
    if _features(node) in axes:
        return bool((weights != weights.reshape(-1)[0]).any())
    return node.op_type == "ConvTranspose" or (node.op_type == "Conv" and _is_padded(node) and axes[-1] > 1)


def _is_padded(node: ir.Node) -> bool:
    same = node.attributes.get_string("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER")
    return same or any(node.attributes.get_ints("pads", ()))


def _features(node: ir.Node) -> int:
    """The axis along which a dense layer or a normalisation has its bias."""
    return 1 if node.op_type in _BY_CHANNEL else len(sizes(node.outputs[0]) or ()) - 1


def _operands(value: ir.Value, axes: tuple[int, ...]) -> Iterable[_Place]:
    """What a value is made of, with the axes of each that become ``axes``; sums of products mix all of them."""
    node, shape = value.producer(), sizes(value)
    if node is None or node.domain or shape is None:
        return
    present = [each for each in node.inputs if each is not None and sizes(each) is not None]
    if node.op_type in _FUNCTIONS:
        present = present[:1]
    elif node.op_type in _PRODUCTS:  # a constant factor leaves zeros equal
        present = [each for each in present if each.const_value is None]
    elif node.op_type == "Transpose" and (order := node.attributes.get_ints("perm")):
        yield present[0], tuple(sorted(order[axis] for axis in axes))
        return
    elif node.op_type in ("Reshape", "Squeeze", "Unsqueeze"):
        yield from _behind_view(present[0], shape, axes)
        return
    elif node.op_type in _BIASED:
        mixed = _features(node) in axes
        for each in [each for each in present[:2] if each.const_value is None]:
            yield each, tuple(range(len(each.shape or ()))) if mixed else axes
        return
    elif node.op_type not in _SUMS:
        return
    for each in present:
        lacks = len(shape) - len(each.shape or ())
        yield each, tuple(axis - lacks for axis in axes if axis >= lacks)


def _behind_view(x: ir.Value, shape: tuple[int | None, ...], axes: tuple[int, ...]) -> Iterable[_Place]:
    """The same last axes in front of a view that leaves them as they are, or makes groups of whole channels of them."""
    before, count = sizes(x) or (), len(axes)
    are_last = all(after - axis == 1 for axis, after in pairwise((*axes, len(shape))))
    kept = before[len(before) - count :]
    if are_last and len(before) >= count and kept == shape[len(shape) - count :] and None not in kept:
        yield x, tuple(range(len(before) - count, len(before)))
    elif axes == (2,) and len(shape) == 3 <= len(before) and before[1] is not None and shape[1] is not None:
        yield x, tuple(range(2 if before[1] == shape[1] else 1, len(before)))
