"""The variance as the mean of squared deviations, where it was written as the difference of two means.

Flax takes ``mean(x²) - mean(x)²`` by default, and so do many files of tf2onnx: all digits are lost where the mean is
large against the deviation.  The other form is the same number, and the right one there.
Source: Chan, Golub, LeVeque: Algorithms for computing the sample variance (1983), on the "textbook" formula.
"""

from __future__ import annotations

import onnx_ir as ir

from convertkit.onnx.edit import axes_of, inserted, is_float32, producer, replaced, sizes

TEXTBOOK = "convertkit.variance"
"""Metadata of the mean that stands for a difference of means: the source's roundings are those of that difference."""


def recognise_variance(node: ir.Node) -> None:
    """The difference of the mean of squares and the square of the mean, over the same axes.

    before:  Sub(ReduceMean(x²), ReduceMean(x)²)
    after:   ReduceMean((x - ReduceMean(x))²)
    """
    if node.op_type != "Sub" or node.domain != "" or not is_float32(node.outputs[0]):
        return
    of_squares = producer(node.inputs[0], "ReduceMean")
    mean = squared(node.inputs[1])
    of_values = producer(mean, "ReduceMean")
    x = None if of_squares is None else squared(of_squares.inputs[0])
    if of_squares is None or of_values is None or x is None or of_values.inputs[0] is not x:
        return
    shape, rank = sizes(x), len(sizes(x) or ())
    axes, own = axes_of(of_squares, rank), axes_of(of_values, rank)
    kept = [each.attributes.get_int("keepdims", 1) for each in (of_squares, of_values)]
    if shape is None or axes is None or axes != own or kept[0] != kept[1] or sizes(node.outputs[0]) is None:
        return
    over = of_squares.inputs[1]
    assert over is not None
    small = ir.Shape([1 if axis in axes else size for axis, size in enumerate(x.shape or ())])
    centre = of_values.outputs[0]
    if not kept[0]:
        centre = inserted(node, "Unsqueeze", [centre, over], x, shape=small).outputs[0]
    deviation = inserted(node, "Sub", [x, centre], x).outputs[0]
    square = inserted(node, "Mul", [deviation, deviation], deviation)
    made = replaced(node, "ReduceMean", [square.outputs[0], over], {"keepdims": kept[0]})
    made.metadata_props[TEXTBOOK] = "a difference of means"


def squared(value: ir.Value | None) -> ir.Value | None:
    """What a value is the square of."""
    node = producer(value, "Mul")
    if node is not None:
        return node.inputs[0] if node.inputs[0] is node.inputs[1] else None
    power = producer(value, "Pow")
    exponent = None if power is None or power.inputs[1] is None else power.inputs[1].const_value
    is_two = exponent is not None and exponent.size == 1 and float(exponent.numpy().reshape(())) == 2.0
    return power.inputs[0] if power is not None and is_two and sizes(value) == sizes(power.inputs[0]) else None
