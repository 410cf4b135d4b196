"""Pairs beside operators that only move integers, where OpenVINO's plugin has the fastest kernels for them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.edit import array_of, bypass, only_user
from convertkit.onnx.interpolation import copies_elements
from convertkit.profile import MOVED

Parameters = tuple[Array, Array]
_JOINS = frozenset({"Concat"})
_FEW_CHANNELS = 32
"""Pools of floats are faster below: with 10 and 20 channels by 1.5 % of a whole small model, with 32 slower by 2 %."""


def drop_repeated_pairs(model: ir.Model) -> int:
    """Leave out pairs that have the parameters of every value that is moved, in place; how many there were.

    before:  x:i8 → DequantizeLinear → MaxPool → QuantizeLinear → DequantizeLinear → y
    after:   x:i8 → DequantizeLinear → MaxPool → y

    What another one without a pair has moved counts as well: MaxPool behind MaxPool, Concat behind both.
    """
    carried = dict[ir.Value, Parameters]()
    for node in tuple(model.graph):
        if not _only_moves(node):
            continue
        moved = node.inputs if node.op_type in _JOINS else node.inputs[:1]
        known = [None if value is None else carried.get(value) or _of_integers(value) for value in moved]
        for value in node.outputs:
            quantize = only_user(value)
            dequantize = None if quantize is None else only_user(quantize.outputs[0])
            wanted = _parameters(quantize, "QuantizeLinear")
            if dequantize is None or wanted is None or not all(_same(each, wanted) for each in known):
                continue
            if not _same(_parameters(dequantize, "DequantizeLinear"), wanted):
                continue
            assert quantize is not None
            bypass(dequantize, value)
            model.graph.remove(quantize, safe=True)
            carried[value] = wanted
    return len(carried)


def round_behind_pools(model: ir.Model) -> int:
    """Move the pair in front of a MaxPool of few channels behind it, in place; how many there were.

    before:  y → QuantizeLinear → DequantizeLinear → MaxPool
    after:   y → MaxPool → QuantizeLinear → DequantizeLinear

    The integers are the same: rounding keeps the order.  A pool that only its own reader rounds is one of floats.
    """
    moved = 0
    for pool in tuple(model.graph):
        if pool.op_type != "MaxPool" or pool.domain or len(pool.outputs) > 1 or not _has_few_channels(pool):
            continue
        read, made = pool.inputs[0], pool.outputs[0]
        dequantize = None if read is None else read.producer()
        parameters = _parameters(dequantize, "DequantizeLinear")
        if read is None or dequantize is None or parameters is None or only_user(read) is not pool:
            continue
        quantized = dequantize.inputs[0]
        quantize = None if quantized is None else quantized.producer()
        if quantize is None or quantized is None or only_user(quantized) is not dequantize or made.is_graph_output():
            continue
        if not _same(_parameters(quantize, "QuantizeLinear"), parameters) or quantize.inputs[0] is None:
            continue
        pool.replace_input_with(0, quantize.inputs[0])
        made.replace_all_uses_with(read)
        quantize.replace_input_with(0, made)
        quantized.shape = read.shape = made.shape
        model.graph.remove([quantize, dequantize])
        model.graph.insert_after(pool, [quantize, dequantize])
        moved += 1
    return moved


def _has_few_channels(node: ir.Node) -> bool:
    value = node.inputs[0]
    size = None if value is None or value.shape is None or len(value.shape) < 2 else value.shape[1]
    return isinstance(size, int) and size < _FEW_CHANNELS


def _only_moves(node: ir.Node) -> bool:
    return (node.op_type in MOVED and not node.domain) or copies_elements(node)


def _of_integers(value: ir.Value) -> Parameters | None:
    return _parameters(value.producer(), "DequantizeLinear")


def _parameters(node: ir.Node | None, kind: str) -> Parameters | None:
    """Scale and zero point of one tensor, where they are stored."""
    if node is None or node.op_type != kind or len(node.inputs) < 3:
        return None
    scale, zero = (array_of(each) for each in node.inputs[1:3])
    return None if scale is None or zero is None or scale.size != 1 else (scale, zero)


def _same(one: Parameters | None, other: Parameters) -> bool:
    """Equal scales, zero points and types."""
    if one is None or one[1].dtype != other[1].dtype:
        return False
    return all(np.array_equal(mine.ravel(), theirs.ravel()) for mine, theirs in zip(one, other, strict=True))
