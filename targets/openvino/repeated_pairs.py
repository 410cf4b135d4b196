"""A pair behind an operator that only moves integers rounds nothing; OpenVINO's plugin makes a kernel of it."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.edit import array_of, bypass, only_user
from convertkit.profile import MOVED

Parameters = tuple[Array, Array]
_JOINS = frozenset({"Concat"})


def drop_repeated_pairs(model: ir.Model) -> int:
    """Leave out pairs that have the parameters of every value that is moved, in place; how many there were.

    before:  x:i8 → DequantizeLinear → MaxPool → QuantizeLinear → DequantizeLinear → y
    after:   x:i8 → DequantizeLinear → MaxPool → y
    """
    dropped = 0
    for node in tuple(model.graph):
        if node.op_type not in MOVED or node.domain:
            continue
        moved = node.inputs if node.op_type in _JOINS else node.inputs[:1]
        known = [_parameters(None if value is None else value.producer(), "DequantizeLinear") for value in moved]
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
            dropped += 1
    return dropped


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
