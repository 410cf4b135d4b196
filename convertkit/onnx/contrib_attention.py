"""ONNX Runtime's attention operators as products, a mask and a softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
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
    return [attended(f, parts, shape[-1] // 3, f.given(3), f.given(5)), None]


def multi_head_attention(f: Fusion) -> Sequence[ir.Value | None]:
    """``MultiHeadAttention``: queries (batch, places, heads × size), keys and values alike, by heads, or packed.

    The second and third result are all keys and values, the given past in front, as (batch, heads, places, size).
    """
    if any(f.given(place) is not None for place in (8, 9)):
        raise Unsupported("a cache of fixed size", subject=f.title)
    shape, heads = f.input(0).shape, f.whole("num_heads")
    if shape is None or not isinstance(shape[-1], int):
        raise Unsupported("queries of unknown size", subject=f.title)
    size = shape[-1] // heads if len(shape) == 3 else shape[-1]
    parts = _with_bias(f, _unpacked(f))
    query, key, value = (
        part if _is_by_heads(f, place) else by_heads(f, part, heads) for place, part in enumerate(parts)
    )
    key, value = (_behind(f, f.given(place), part) for place, part in ((6, key), (7, value)))
    return [by_score(f, (query, key, value), size, f.given(4), f.given(5)), key, value, None]


def _behind(f: Fusion, past: ir.Value | None, part: ir.Value) -> ir.Value:
    return part if past is None else f.op("Concat", past, part, attributes=[ir.AttrInt64("axis", 2)])


def _is_by_heads(f: Fusion, place: int) -> bool:
    given = f.given(place)
    return place > 0 and given is not None and f.rank(given) == 4


def _unpacked(f: Fusion) -> list[ir.Value]:
    """Queries, keys and values; packed ones are (batch, places, heads, 2 or 3, size)."""
    first, second, third = (f.given(place) for place in range(3))
    if first is not None and second is not None and third is not None:
        return [first, second, third]
    packed, count = (f.input(0), 3) if second is None else (second, 2)
    if f.rank(packed) != 5:
        raise Unsupported("keys or values are left out and nothing is packed", subject=f.title)
    attributes = [ir.AttrInt64("axis", 3), ir.AttrInt64("num_outputs", count)]
    parts = f.ops("Split", packed, attributes=attributes, count=count)
    flat = [f.op("Reshape", part, f.ints(0, 0, -1)) for part in parts]
    return flat if second is None else [f.input(0), *flat]


def _with_bias(f: Fusion, parts: list[ir.Value]) -> list[ir.Value]:
    """One vector holds the biases of all three."""
    bias = f.given(3)
    if bias is None:
        return parts
    shape = f.input(0).shape
    if (
        shape is None
        or not isinstance(shape[-1], int)
        or len(shape) != 3
        or any(_is_by_heads(f, place) for place in (1, 2))
    ):
        raise Unsupported("a bias for keys or values that are split or packed", subject=f.title)
    hidden = shape[-1]
    cuts = [(0, hidden), (hidden, 2 * hidden), (2 * hidden, 1 << 31)]
    rows = [f.op("Slice", bias, f.ints(first), f.ints(last), f.ints(0)) for first, last in cuts]
    return [f.op("Add", part, row) for part, row in zip(parts, rows, strict=True)]


def attended(
    f: Fusion, parts: Sequence[ir.Value], hidden: int, mask: ir.Value | None, bias: ir.Value | None
) -> ir.Value:
    """Queries, keys and values (batch, places, hidden) as one such result."""
    heads = f.whole("num_heads")
    query, key, value = (by_heads(f, part, heads) for part in parts)
    return by_score(f, (query, key, value), hidden // heads, mask, bias)


def by_score(
    f: Fusion,
    parts: tuple[ir.Value, ir.Value, ir.Value],
    size: int,
    mask: ir.Value | None,
    bias: ir.Value | None,
) -> ir.Value:
    """Queries, keys and values (batch, heads, places, size) as (batch, places, heads × size)."""
    query, key, value = parts
    turned = f.op("Transpose", key, attributes=[ir.AttrInt64s("perm", [0, 1, 3, 2])])
    scale = f.real("scale", 0.0) or 1 / math.sqrt(size)
    scores = f.op("Mul", f.op("MatMul", query, turned), _real(f, scale))
    if mask is not None:
        scores = f.op("Add", scores, _forbidden(f, mask, scores))
    if f.whole("unidirectional"):
        scores = f.op("Add", scores, _later(f, scores))
    if bias is not None:
        scores = f.op("Add", scores, bias)
    shares = f.op("Softmax", scores, attributes=[ir.AttrInt64("axis", -1)])
    mixed = f.op("Transpose", f.op("MatMul", shares, value), attributes=[ir.AttrInt64s("perm", [0, 2, 1, 3])])
    return f.op("Reshape", mixed, f.ints(0, 0, -1))


def _real(f: Fusion, value: float) -> ir.Value:
    """A scalar of the type that is computed in, which is float32 where the input is integer."""
    kind = f.input(0).dtype
    if kind is None or not kind.is_floating_point():
        return f.tensor(np.array(value, np.float32))
    return f.number(value)


def by_heads(f: Fusion, x: ir.Value, heads: int) -> ir.Value:
    """(batch, places, heads × size) as (batch, heads, places, size)."""
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
        count = f.op("Squeeze", size_along(f, scores, 3), f.ints(0))
        zero, one = (f.op("Squeeze", f.ints(number), f.ints(0)) for number in (0, 1))
        places = f.op("Range", zero, count, one)
        inside = f.op("Less", places, f.op("Unsqueeze", _whole(f, mask), f.ints(1)))
        allowed = _whole(f, inside)
    elif rank in (2, 3):
        allowed, axes = _whole(f, mask), (1, 2) if rank == 2 else (1,)
    else:
        raise Unsupported(f"a mask of rank {rank}", subject=f.title)
    given = f.input(0).dtype
    kind = given if given is not None and given.is_floating_point() else ir.DataType.FLOAT
    real = f.op("Cast", allowed, attributes=[ir.AttrInt64("to", int(kind))])
    missing = f.op("Sub", _real(f, 1.0), f.op("Unsqueeze", real, f.ints(*axes)))
    return f.op("Mul", missing, _real(f, f.real("mask_filter_value", _MASKED)))


def _later(f: Fusion, scores: ir.Value) -> ir.Value:
    """What is added where a key stands behind its query; the last ones stand side by side."""
    zeros = f.op("Mul", scores, _real(f, 0.0))
    filled = f.op("Add", zeros, _real(f, f.real("mask_filter_value", _MASKED)))
    older = f.op("Sub", size_along(f, scores, 3), size_along(f, scores, 2))
    place = f.op("Squeeze", f.op("Add", older, f.ints(1)), f.ints(0))
    return f.op("Trilu", filled, place, attributes=[ir.AttrInt64("upper", 1)])


def size_along(f: Fusion, x: ir.Value, axis: int) -> ir.Value:
    """One size, of shape (1)."""
    return f.op("Gather", f.op("Shape", x), f.ints(axis))


def _whole(f: Fusion, x: ir.Value) -> ir.Value:
    return f.op("Cast", x, attributes=[ir.AttrInt64("to", int(ir.DataType.INT64))])
