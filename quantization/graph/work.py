"""What a node computes: multiply-adds of one sample."""

from __future__ import annotations

import math
from collections.abc import Iterator

import onnx_ir as ir

from convertkit.profile import RECURRENT
from convertkit.quantization.graph.sizes import elements, sizes

PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
"""Operators that multiply matrices."""
_PAIR = frozenset({"QuantizeLinear", "DequantizeLinear"})


def multiply_adds(node: ir.Node) -> float:
    """Of one sample; 0 for operators that are not products of matrices."""
    if node.domain or node.op_type not in PRODUCTS | RECURRENT:
        return 0.0
    data, weight, *more = (_origin(value) for value in node.inputs if value is not None)
    if node.op_type in RECURRENT:
        steps = (*sizes(data), 1)[0]
        return float(steps * (elements(weight) + (elements(more[0]) if more else 0)))
    made = elements(node.outputs[0])
    if node.op_type == "ConvTranspose":
        return float(elements(data) * math.prod(sizes(weight)[1:]))
    if node.op_type == "Conv":
        return float(made * math.prod(sizes(weight)[1:]))
    shape = sizes(data) or (1,)
    return float(made * (shape[0] if node.attributes.get_int("transA", 0) else shape[-1]))


def _origin(value: ir.Value) -> ir.Value:
    """What was quantized: its sizes are the measured ones."""
    for maker in _makers(value):
        source = maker.inputs[0]
        assert source is not None
        value = source
    return value


def _makers(value: ir.Value) -> Iterator[ir.Node]:
    maker = value.producer()
    while maker is not None and maker.op_type in _PAIR:
        yield maker
        source = maker.inputs[0]
        maker = None if source is None else source.producer()
