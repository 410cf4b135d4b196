"""A norm that is written as a factor and an offset, with the mean taken off the values themselves.

In ``x f + (b - m f)`` the mean goes by a difference of products that are much larger than it: where all of ``x`` are
equal, a mean that is off by a rounding is multiplied by the whole factor, 316 behind an epsilon of 1e-5.  The deviation
``x - m`` is computed for the variance anyway, and more exactly (``deviation.py``).
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from convertkit.onnx.edit import is_float32, producer, replaced, sizes
from convertkit.onnx.recognise.match import added, is_number

_SUMS = ("Add", "Sum")


def recognise_centred(node: ir.Node) -> None:
    """A factor and an offset as those of a deviation that is there.

    before:  x · f + (b - m · f), where m is a mean of x, and x - m
    after:   (x - m) · f + b

    Leaves sums without a deviation: computing one costs more than the offset.
    """
    if node.domain or node.op_type not in _SUMS or len(node.inputs) != 2 or not is_float32(node.outputs[0]):
        return
    for place in (0, 1):
        product = producer(node.inputs[place], "Mul")
        for x, factor in () if product is None else (product.inputs, product.inputs[::-1]):
            for mean, bias in _offsets(node.inputs[1 - place], factor):
                deviation = None if x is None else _deviation(x, mean)
                if deviation is not None and factor is not None:
                    _write(node, deviation, factor, bias)
                    return


def _write(node: ir.Node, deviation: ir.Value, factor: ir.Value, bias: ir.Value | None) -> None:
    if bias is None:
        replaced(node, "Mul", [deviation, factor])
        return
    scaled = added(node, "Mul", [deviation, factor], node.outputs[0], f"{node.outputs[0].name}/scaled")
    replaced(node, "Add", [scaled, bias])


def _offsets(offset: ir.Value | None, factor: ir.Value | None) -> Iterator[tuple[ir.Value, ir.Value | None]]:
    """Values ``m`` and ``b`` with ``offset = b - m · factor``; ``b`` is None for 0."""
    if (mean := _taken(offset, factor)) is not None:
        yield mean, None
    difference = producer(offset, "Sub")
    if difference is not None and (mean := _multiplied(difference.inputs[1], factor)) is not None:
        yield mean, difference.inputs[0]
    total = None if offset is None else offset.producer()
    if total is not None and total.op_type in _SUMS and not total.domain and len(total.inputs) == 2:
        for place in (0, 1):
            if (mean := _taken(total.inputs[place], factor)) is not None:
                yield mean, total.inputs[1 - place]


def _taken(value: ir.Value | None, factor: ir.Value | None) -> ir.Value | None:
    """``m`` where the value is ``-m · factor``."""
    if (inner := _negative(value)) is not None:
        return _multiplied(inner, factor)
    return _negative(_multiplied(value, factor))


def _multiplied(value: ir.Value | None, factor: ir.Value | None) -> ir.Value | None:
    product = producer(value, "Mul")
    if product is None or factor is None or factor not in product.inputs:
        return None
    return product.inputs[1 - product.inputs.index(factor)]


def _negative(value: ir.Value | None) -> ir.Value | None:
    """``a`` where the value is ``-a``."""
    node = producer(value, "Neg")
    if node is not None:
        return node.inputs[0]
    product = producer(value, "Mul")
    for place in (0, 1) if product is not None else ():
        assert product is not None
        if is_number(product.inputs[place], -1.0):
            return product.inputs[1 - place]
    return None


def _deviation(x: ir.Value, mean: ir.Value) -> ir.Value | None:
    """``x - mean`` where that is computed, ``mean`` is one of ``x`` and is laid out along it."""
    made = producer(mean, "ReduceMean")
    if made is None or made.inputs[0] is not x:
        return None
    found = (use.node for use in x.uses() if use.idx == 0 and use.node.op_type == "Sub" and not use.node.domain)
    return next((each.outputs[0] for each in found if each.inputs[1] is mean and _is_like(each.outputs[0], x)), None)


def _is_like(value: ir.Value, x: ir.Value) -> bool:
    return sizes(x) is not None and sizes(value) == sizes(x)
