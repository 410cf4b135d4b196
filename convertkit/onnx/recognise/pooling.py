"""Average pooling that was written as a sum over windows, divided by how many elements each has."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.edit import array_of, dropped, only_user, producer, replaced, sizes

_VIEWS = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Transpose", "Flatten", "Identity"})
_FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16})


def recognise_average_pool(node: ir.Node) -> None:
    """A sum over windows, which ONNX writes as a mean times the size of the window, and its division.

    before:  Div(Mul(AveragePool(x, count_include_pad=1), k), c), k the elements of a window
    after:   AveragePool(x, count_include_pad=1) where c is k, or AveragePool(x) where c counts what is not padding

    ``c`` is a constant, or the same sum over a tensor of ones with the sizes of ``x``.  All numbers are small integers,
    so that they have to be met exactly.  The product and the division that go away were two roundings.
    """
    if node.op_type != "Div" or node.domain != "" or node.outputs[0].dtype not in _FLOATS:
        return
    if _is_divided_again(node):
        return
    pool = _sum_of_windows(node.inputs[0])
    if pool is None or sizes(node.outputs[0]) != sizes(node.inputs[0]):
        return
    with_padding = _counts_with_padding(pool, node.inputs[1])
    if with_padding is None:
        return
    x = pool.inputs[0]
    assert x is not None
    made = replaced(node, "AveragePool", [x])
    made.attributes.update(pool.attributes)
    made.attributes["count_include_pad"] = ir.AttrInt64("count_include_pad", int(with_padding))


def _is_divided_again(node: ir.Node) -> bool:
    """Take out a product and its division by the same whole number, with views of the product in between.

    before:  Div(views(Mul(AveragePool(x), k)), k)
    after:   views(AveragePool(x))
    """
    value, divisor = node.inputs[0], array_of(node.inputs[1])
    views = 0
    while value is not None and only_user(value) is not None and (view := value.producer()) is not None:
        if view.op_type not in _VIEWS or view.domain != "":
            break
        value, views = view.inputs[0], views + 1
    pool = _sum_of_windows(value) if views else None
    product = None if pool is None or value is None else value.producer()
    source = node.inputs[0]
    whole = None if pool is None else float(math.prod(_ints(pool, "kernel_shape", 1)))
    if product is None or divisor is None or divisor.size != 1 or float(divisor.reshape(())) != whole:
        return False
    if value is None or only_user(value) is None or source is None or sizes(node.outputs[0]) != sizes(source):
        return False
    assert pool is not None
    dropped(product, pool.outputs[0])
    dropped(node, source)
    return True


def _sum_of_windows(value: ir.Value | None) -> ir.Node | None:
    """The AveragePool that a value is times the size of its window."""
    product = producer(value, "Mul")
    if product is None:
        return None
    for place in (0, 1):
        pool, factor = producer(product.inputs[place], "AveragePool"), array_of(product.inputs[1 - place])
        if pool is None or factor is None or factor.size != 1:
            continue
        padded = any(pool.attributes.get_ints("pads", ()))
        counted = pool.attributes.get_int("count_include_pad", 0) == 1 or not padded
        plain = not pool.attributes.get_int("ceil_mode", 0) and "auto_pad" not in pool.attributes
        if counted and plain and float(factor.reshape(())) == math.prod(_ints(pool, "kernel_shape", 1)):
            return pool
    return None


def _counts_with_padding(pool: ir.Node, divisor: ir.Value | None) -> bool | None:
    """Whether ``divisor`` counts the padding, too; None where it counts something else."""
    whole, counts = float(math.prod(_ints(pool, "kernel_shape", 1))), array_of(divisor)
    if counts is not None and counts.size == 1 and float(counts.reshape(())) == whole:
        return True
    if counts is not None:
        wanted = _counts(pool)
        return False if wanted is not None and _is_spread(counts, wanted) else None
    ones = _sum_of_windows(divisor)
    same = ones is not None and _are_ones(ones.inputs[0]) and _is_same_pooling(ones, pool)
    return False if same else None


def _is_spread(counts: Array, wanted: Array) -> bool:
    """Whether ``counts`` broadcasts to exactly ``wanted``."""
    while counts.ndim > wanted.ndim and counts.shape[0] == 1:
        counts = counts[0]
    sides = zip(counts.shape[::-1], wanted.shape[::-1], strict=False)
    fits = counts.ndim <= wanted.ndim and all(own in (1, size) for own, size in sides)
    return fits and bool((counts == wanted).all())


def _counts(pool: ir.Node) -> Array | None:
    """How many elements of each window of a known size are not padding, [1, 1, spatial…]; None where one has none."""
    shape = sizes(pool.inputs[0])
    if shape is None or None in shape[2:]:
        return None
    rank = len(shape) - 2
    kernel, strides = _ints(pool, "kernel_shape", rank), _ints(pool, "strides", rank)
    dilations, pads = _ints(pool, "dilations", rank), pool.attributes.get_ints("pads", (0,) * (2 * rank))
    lines = []
    for axis, size in enumerate(shape[2:]):
        low, high = pads[axis], pads[rank + axis]
        reach = (kernel[axis] - 1) * dilations[axis] + 1
        starts = range(-low, (size or 0) + high - reach + 1, strides[axis])
        taken = [[start + step * dilations[axis] for step in range(kernel[axis])] for start in starts]
        lines.append([sum(0 <= place < (size or 0) for place in places) for places in taken])
    counts = np.array([math.prod(each) for each in itertools.product(*lines)], np.float64)
    return counts.reshape(1, 1, *map(len, lines)) if counts.size and counts.min() > 0 else None


def _ints(pool: ir.Node, name: str, rank: int) -> Sequence[int]:
    return pool.attributes.get_ints(name, (1,) * rank)


def _are_ones(value: ir.Value | None) -> bool:
    array, spread = array_of(value), producer(value, "Expand")
    if array is None and spread is not None:
        array = array_of(spread.inputs[0])
    return array is not None and array.size > 0 and bool((array == 1).all())


def _is_same_pooling(ones: ir.Node, pool: ir.Node) -> bool:
    """Whether the windows are the same, over the same sizes."""
    names = ("kernel_shape", "strides", "pads", "dilations", "count_include_pad")
    same = all(ones.attributes.get(name) == pool.attributes.get(name) for name in names)
    shapes = [None if each.inputs[0] is None else each.inputs[0].shape for each in (ones, pool)]
    if not same or shapes[0] is None or shapes[1] is None or len(shapes[0]) != len(shapes[1]):
        return False
    pairs = zip(list(shapes[0])[2:], list(shapes[1])[2:], strict=True)
    known = all(a == b and (isinstance(a, int) or a.value is not None) for a, b in pairs)
    return known and all(size in (1, other) for size, other in zip(shapes[0][:2], shapes[1][:2], strict=True))
