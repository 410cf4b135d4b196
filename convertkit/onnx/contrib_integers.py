"""ONNX Runtime's products of integers that give floats, in ONNX's own integer operators."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from convertkit.errors import Unsupported
from convertkit.onnx.contrib_attention import attended, hidden_sizes
from convertkit.onnx.fusion import Fusion

_LONG_KNOWN = frozenset({ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT32})
"""Integers that ONNX's own QuantizeLinear and DequantizeLinear had before opset 21."""


def quantize_linear(f: Fusion) -> Sequence[ir.Value | None] | None:
    """``QuantizeLinear`` as ONNX's own, where that has the type; ONNX Runtime's quantizer writes it for 16 bits."""
    zero = f.given(2)
    return _in_onnx(f, ir.DataType.UINT8 if zero is None else zero.dtype)


def dequantize_linear(f: Fusion) -> Sequence[ir.Value | None] | None:
    """``DequantizeLinear`` as ONNX's own, where that has the type."""
    stored = f.input(0)
    return _in_onnx(f, stored.dtype if stored.const_value is None else stored.const_value.dtype)


def _in_onnx(f: Fusion, kind: ir.DataType | None) -> Sequence[ir.Value | None] | None:
    graph = f.node.graph
    opset = graph.opset_imports.get("", 1) if isinstance(graph, ir.Graph) else 1
    if kind is None or (kind not in _LONG_KNOWN and opset < _SIXTEEN_BITS_SINCE):
        return None
    operands = [each for each in f.node.inputs if each is not None]
    kept = [f.node.attributes["axis"]] if "axis" in f.node.attributes else []
    return [f.op(f.node.op_type, *operands, attributes=kept)]


_SIXTEEN_BITS_SINCE = 21


def dynamic_quantize_matmul(f: Fusion) -> Sequence[ir.Value | None]:
    """``DynamicQuantizeMatMul``: a, weight, its scale, its zero point, bias; ``a`` is quantized as it comes."""
    integers, scale, zero = f.ops("DynamicQuantizeLinear", f.input(0), count=3)
    bias = f.given(4)
    product = _product(f, (integers, scale, zero), (f.input(1), f.input(2), f.given(3)))
    return [product if bias is None else f.op("Add", product, bias)]


def matmul_integer_to_float(f: Fusion) -> Sequence[ir.Value | None]:
    """``MatMulIntegerToFloat``: a, b, their scales, their zero points, bias."""
    bias = f.given(6)
    product = _product(f, (f.input(0), f.input(2), f.given(4)), (f.input(1), f.input(3), f.given(5)))
    return [product if bias is None else f.op("Add", product, bias)]


def quantized_attention(f: Fusion) -> Sequence[ir.Value | None]:
    """``QAttention``: ``Attention`` whose first product is one of integers."""
    if f.whole("do_rotary"):
        raise Unsupported("rotary positions inside", subject=f.title)
    joined = _product(f, (f.input(0), f.input(3), f.given(6)), (f.input(1), f.input(4), f.given(7)))
    return attended(f, f.op("Add", joined, f.input(2)), hidden_sizes(f), (f.given(5), None, f.given(8)))


def _product(
    f: Fusion, first: tuple[ir.Value, ir.Value, ir.Value | None], second: tuple[ir.Value, ir.Value, ir.Value | None]
) -> ir.Value:
    """Integers, scale and zero point of both sides; scales of the second may be one for each column."""
    (a, a_scale, a_zero), (b, b_scale, b_zero) = first, second
    zeros = [_zero(f, a) if a_zero is None else a_zero, _zero(f, b) if b_zero is None else b_zero]
    whole = f.op("MatMulInteger", a, b, *zeros)
    real = f.op("Cast", whole, attributes=[ir.AttrInt64("to", int(ir.DataType.FLOAT))])
    return f.op("Mul", real, f.op("Mul", a_scale, b_scale))


def _zero(f: Fusion, x: ir.Value) -> ir.Value:
    if x.dtype is None:
        raise Unsupported(f"the element type of {x.name} is unknown", subject=f.title)
    return f.tensor(np.array(0, x.dtype.numpy()))
