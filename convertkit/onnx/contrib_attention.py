"""ONNX Runtime's attention operators as products, a mask and a softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from convertkit.errors import Unsupported
from convertkit.onnx.fusion import Fusion

_MASKED = -10000.0
"""What ONNX Runtime adds where a mask forbids, unless ``mask_filter_value`` says otherwise."""


def attention(f: Fusion) -> Sequence[ir.Value | None]:
    """``Attention``: one product makes queries, keys and values."""
    if f.given(4) is not None or f.whole("do_rotary"):
        raise Unsupported("a past or rotary positions inside", subject=f.title)
    sizes = f.node.attributes.get("qkv_hidden_sizes")
    if sizes is not None and len(set(sizes.as_ints())) > 1:
        raise Unsupported("queries, keys and values of different sizes", subject=f.title)
    joined, bias = f.op("MatMul", f.input(0), f.input(1)), f.given(2)
    if bias is not None:
        joined = f.op("Add", joined, bias)
    shape = f.input(1).shape
    if shape is None or not isinstance(shape[-1], int):
        raise Unsupported("weights of unknown size", subject=f.title)
    attributes = [ir.AttrInt64("axis", -1), ir.AttrInt64("num_outputs", 3)]
    parts = f.ops("Split", joined, attributes=attributes, count=3)
    return [_attended(f, parts, shape[-1] // 3, f.given(3), f.given(5)), None]


def multi_head_attention(f: Fusion) -> Sequence[ir.Value | None]:
    """``MultiHeadAttention``: queries, keys and values as three tensors (batch, places, heads × size)."""
    if any(f.given(place) is not None for place in (6, 7, 8, 9)):
        raise Unsupported("a past or a cache", subject=f.title)
    parts = [f.input(place) for place in range(3)]
    if any(f.rank(part) != 3 for part in parts):
        raise Unsupported(
            "packed or split operands; there is a rule for three of (batch, places, hidden)", subject=f.title
        )
    shape = parts[0].shape
    if shape is None or not isinstance(shape[-1], int):
        raise Unsupported("queries of unknown size", subject=f.title)
    bias = f.given(3)
    if bias is not None:
        hidden = shape[-1]
        cuts = [(0, hidden), (hidden, 2 * hidden), (2 * hidden, 1 << 31)]
        rows = [f.op("Slice", bias, f.ints(first), f.ints(last), f.ints(0)) for first, last in cuts]
        parts = [f.op("Add", part, row) for part, row in zip(parts, rows, strict=True)]
    return [_attended(f, parts, shape[-1], f.given(4), f.given(5)), None, None, None]


def _attended(
    f: Fusion, parts: Sequence[ir.Value], hidden: int, mask: ir.Value | None, bias: ir.Value | None
) -> ir.Value:
    heads = f.whole("num_heads")
    query, key, value = (_by_heads(f, part, heads) for part in parts)
    turned = f.op("Transpose", key, attributes=[ir.AttrInt64s("perm", [0, 1, 3, 2])])
    scale = f.real("scale", 0.0) or 1 / math.sqrt(hidden // heads)
    scores = f.op("Mul", f.op("MatMul", query, turned), f.number(scale))
    if mask is not None:
        scores = f.op("Add", scores, _forbidden(f, mask, scores))
    if f.whole("unidirectional"):
        scores = f.op("Add", scores, _later(f, scores))
    if bias is not None:
        scores = f.op("Add", scores, bias)
    shares = f.op("Softmax", scores, attributes=[ir.AttrInt64("axis", -1)])
    mixed = f.op("Transpose", f.op("MatMul", shares, value), attributes=[ir.AttrInt64s("perm", [0, 2, 1, 3])])
    return f.op("Reshape", mixed, f.ints(0, 0, -1))


def _by_heads(f: Fusion, x: ir.Value, heads: int) -> ir.Value:
    split = f.op("Reshape", x, f.ints(0, 0, heads, -1))
    return f.op("Transpose", split, attributes=[ir.AttrInt64s("perm", [0, 2, 1, 3])])


def _forbidden(f: Fusion, mask: ir.Value, scores: ir.Value) -> ir.Value:
    """What is added where the mask is 0: (batch), lengths; (batch, places); or (batch, places, places)."""
    rank = f.rank(mask)
    axes: tuple[int, ...] = (1, 2)
    if rank == 1:
        first = f.input(0).shape
        if mask.shape is None or first is None or mask.shape[0] != first[0]:
            raise Unsupported("a mask of lengths and starts", subject=f.title)
        count = f.op("Squeeze", _size(f, scores, 3), f.ints(0))
        zero, one = (f.op("Squeeze", f.ints(number), f.ints(0)) for number in (0, 1))
        places = f.op("Range", zero, count, one)
        inside = f.op("Less", places, f.op("Unsqueeze", _whole(f, mask), f.ints(1)))
        allowed = _whole(f, inside)
    elif rank in (2, 3):
        allowed, axes = _whole(f, mask), (1, 2) if rank == 2 else (1,)
    else:
        raise Unsupported(f"a mask of rank {rank}", subject=f.title)
    kind = f.input(0).dtype or ir.DataType.FLOAT
    real = f.op("Cast", allowed, attributes=[ir.AttrInt64("to", int(kind))])
    missing = f.op("Sub", f.number(1.0), f.op("Unsqueeze", real, f.ints(*axes)))
    return f.op("Mul", missing, f.number(f.real("mask_filter_value", _MASKED)))


def _later(f: Fusion, scores: ir.Value) -> ir.Value:
    """What is added where a key stands behind its query."""
    zeros = f.op("Mul", scores, f.number(0.0))
    filled = f.op("Add", zeros, f.number(f.real("mask_filter_value", _MASKED)))
    return f.op("Trilu", filled, f.op("Squeeze", f.ints(1), f.ints(0)), attributes=[ir.AttrInt64("upper", 1)])


def _size(f: Fusion, x: ir.Value, axis: int) -> ir.Value:
    return f.op("Gather", f.op("Shape", x), f.ints(axis))


def _whole(f: Fusion, x: ir.Value) -> ir.Value:
    return f.op("Cast", x, attributes=[ir.AttrInt64("to", int(ir.DataType.INT64))])
