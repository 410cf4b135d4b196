"""Sigmoid and mean, which JAX writes out."""

from __future__ import annotations

import math

import onnx_ir as ir

from convertkit.onnx.edit import (
    array_of,
    axes_of,
    is_float32,
    producer,
    replaced,
    sizes,
)
from convertkit.onnx.recognise.match import Term, is_number, match

_SIGMOID: Term = ("Div", 1.0, ("Add", 1.0, ("Exp", ("Neg", "x"))))


def recognise_sigmoid(node: ir.Node) -> None:
    """The logistic function, by its definition.

    before:  Div(1, Add(1, Exp(Neg(x))))
    after:   Sigmoid(x)
    """
    if node.op_type != "Div" or node.domain != "":
        return
    found = match(_SIGMOID, node.outputs[0], {})
    if found is not None and is_float32(found["x"]) and found["x"].shape == node.outputs[0].shape:
        replaced(node, "Sigmoid", [found["x"]])


def recognise_mean(node: ir.Node) -> None:
    """A sum divided by how many elements it adds.

    before:  Div(ReduceSum(x, axes), n), perhaps with the axes put back by a Reshape in between
    after:   ReduceMean(x, axes)
    """
    if node.op_type != "Div" or node.domain != "" or not is_float32(node.outputs[0]):
        return
    put_back = producer(node.inputs[0], "Reshape")
    total = producer(node.inputs[0] if put_back is None else put_back.inputs[0], "ReduceSum")
    if total is None or sizes(node.outputs[0]) != sizes(node.inputs[0]):
        return
    x, shape = total.inputs[0], sizes(total.inputs[0])
    axes = None if shape is None else axes_of(total, len(shape))
    if x is None or shape is None or not axes or array_of(node.inputs[1]) is None:
        return
    keepdims = total.attributes.get_int("keepdims", 1)
    if put_back is not None:
        if sizes(node.outputs[0]) != tuple(1 if axis in axes else size for axis, size in enumerate(shape)):
            return
        keepdims = 1
    count = math.prod(shape[axis] or 0 for axis in axes)
    if count and is_number(node.inputs[1], float(count), node.outputs[0].shape):
        over = total.inputs[1]
        assert over is not None
        replaced(node, "ReduceMean", [x, over], {"keepdims": keepdims})
