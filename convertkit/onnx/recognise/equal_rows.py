"""Normalisations whose elements may all be equal, and whose epsilon does not hide the error of their mean.

A runtime's mean of equal elements is an error of the last place off.  Divided by the root of an epsilon of 1e-12 that
is as large as a result; PyTorch, which updates mean and squares with each element, gives 0 (B. P. Welford, 1962, as in
:mod:`convertkit.onnx.recognise.deviation`).  Taken from one of the elements first, they are 0 in any arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import array_of, initializer, inserted, is_float32, sizes
from convertkit.onnx.recognise.deviation import LEAST_USUAL, is_shifted

_Place = tuple[ir.Value, tuple[int, ...]]
"""A value, and axes of it."""
_FUNCTIONS = frozenset({
    "Abs", "Cast", "Celu", "Clip", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu",
    "Log", "Mish", "Neg", "Pow", "Reciprocal", "Relu", "Selu", "Sigmoid", "Softplus", "Softsign", "Sqrt", "Swish",
    "Tanh",
})  # fmt: skip
"""Operators of which each element of the result depends on that of the first operand alone."""
_SUMS, _PRODUCTS = frozenset({"Add", "Sub", "Sum", "Concat"}), frozenset({"Mul", "Div"})
_BIASED = {"MatMul": 2, "Gemm": 2, "Conv": 2, "LayerNormalization": 2, "BatchNormalization": 2}
"""Operators that end in a bias along one axis, and which operand that is."""
_BY_CHANNEL = frozenset({"Conv", "BatchNormalization"})
_MOST = 400


def recognise_norm_of_equals(node: ir.Node) -> None:
    """A normalisation with less than a usual epsilon, of what need not vary along its axes.

    before:  InstanceNormalization(x), LayerNormalization(x)
    after:   the same of s = x - x[first]
    """
    axes, x = _axes(node), node.inputs[0] if node.inputs else None
    if not axes or x is None or not is_float32(x) or is_shifted(x):
        return
    if node.attributes.get_float("epsilon", 1e-5) >= LEAST_USUAL or _varies(x, axes):
        return
    along = initializer(node, np.array(axes, np.int64), f"{x.name}/axes")
    starts = initializer(node, np.zeros(len(axes), np.int64), f"{x.name}/first")
    ends = initializer(node, np.ones(len(axes), np.int64), f"{x.name}/second")
    small = ir.Shape([1 if axis in axes else size for axis, size in enumerate(x.shape or ())])
    origin = inserted(node, "Slice", [x, starts, ends, along], x, shape=small).outputs[0]
    node.replace_input_with(0, inserted(node, "Sub", [x, origin], x).outputs[0])


def shifts(node: ir.Node) -> bool:
    """Whether this is a normalisation that takes its input from one of its elements."""
    x = node.inputs[0] if node.inputs else None
    return bool(_axes(node)) and x is not None and is_shifted(x)


def _axes(node: ir.Node) -> tuple[int, ...]:
    """The axes that a node normalises, none of them negative; empty where it is another node, or tells its mean."""
    rank = len(sizes(node.inputs[0]) or ()) if node.inputs else 0
    if node.domain or not rank:
        return ()
    if node.op_type == "InstanceNormalization":
        return tuple(range(2, rank))
    alone = not any(each.uses() or each.is_graph_output() for each in node.outputs[1:])
    if node.op_type == "LayerNormalization" and alone:
        return tuple(range(node.attributes.get_int("axis", -1) % rank, rank))
    return ()


def _varies(x: ir.Value, axes: tuple[int, ...]) -> bool:
    """Whether constants make the elements along ``axes`` differ on silence, too: a bias, a table of positions."""
    open_, seen = [(x, axes)], {(x, axes)}
    while open_ and len(seen) < _MOST:
        value, along = open_.pop()
        if _is_varied(value, along):
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
    """The same last axes in front of a view that leaves them as they are."""
    before, count = sizes(x) or (), len(axes)
    are_last = all(after - axis == 1 for axis, after in pairwise((*axes, len(shape))))
    kept = before[len(before) - count :]
    if are_last and len(before) >= count and kept == shape[len(shape) - count :] and None not in kept:
        yield x, tuple(range(len(before) - count, len(before)))
